"""Authentication with API keys, and protection against requests from pages of other sites."""

import base64
import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.http.errors import key_is_missing, other_site_asks

WWW_AUTHENTICATE = {"www-authenticate": 'Bearer, Basic realm="the key as password"'}
"""header of a 401: it makes a browser ask for a password"""


class ApiKeyAuth:
    """Protection of routes by the configured API keys; without keys everyone may ask."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = [key.encode() for key in keys]

    def __bool__(self) -> bool:
        """Return whether a key is required."""
        return bool(self.keys)

    def protect(self, route: Route) -> Route:
        """Return a route whose handler requires a key first; without configured keys return it unchanged."""
        if not self.keys:
            return route

        async def authenticated(request: Request) -> Response:
            self.require_key(request)
            response: Response = await route.endpoint(request)
            return response

        return Route(route.path, authenticated, methods=[*(route.methods or ())])

    def require_key(self, request: Request) -> None:
        """Reject a request that carries none of the keys."""
        sent_key = extract_key(request).encode()
        matches = [hmac.compare_digest(sent_key, key) for key in self.keys]  # all keys, so that time reveals nothing
        if not any(matches):
            raise key_is_missing()


def reject_cross_site(request: Request) -> None:
    """Reject a request that a page of another site makes a browser send; without keys nothing else would stop it."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise other_site_asks()


def extract_key(request: Request) -> str:
    """Return the API key that a request carries, or an empty string.

    A browser sends the key as a password, and does so for requests from other sites' pages too; the password is
    therefore accepted for GET only.
    """
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    if kind == "Basic" and request.method == "GET":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except ValueError:  # not base64, or not UTF-8
            return ""
    return credentials if kind == "Bearer" else request.headers.get("x-api-key", "")
