"""Authentication with API keys, and protection against requests from pages of other sites."""

import base64
import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.http.errors import key_is_missing, other_site_asks

BASIC_CHALLENGE, BEARER_CHALLENGE = 'Basic realm="the key as password"', "Bearer"


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


def build_challenge(request: Request) -> dict[str, str]:
    """Return the header of a 401: a browser that reads a page is made to ask for a password.

    It names one scheme. Chromium reads a line of several as one that it does not know, and asks nobody; and a request
    that changes something does not take a password, so that asking for one would help nobody.
    """
    return {"www-authenticate": BASIC_CHALLENGE if request.method == "GET" else BEARER_CHALLENGE}


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
