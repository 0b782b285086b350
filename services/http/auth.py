"""Who may ask: those with a key, if there are any."""

import base64
import hmac
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from services.http.errors import key_is_missing, other_site_asks

RouteHandler = Callable[[Request], Awaitable[Response]]

WWW_AUTHENTICATE = {"www-authenticate": 'Bearer, Basic realm="the key as password"'}
"""header of a refusal for want of a key: a browser then asks for a password"""


class ApiKeyAuth:
    """Holds the keys."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = [key.encode() for key in keys]

    def __bool__(self) -> bool:
        """Whether a key is asked for."""
        return bool(self.keys)

    def __call__(self, handler: RouteHandler) -> RouteHandler:
        """The same, asked for a key first if there are any."""
        if not self.keys:
            return handler

        async def guarded(request: Request) -> Response:
            self.require_key(request)
            return await handler(request)

        return guarded

    def require_key(self, request: Request) -> None:
        """Refuse who shows none of the keys."""
        found = extract_key(request).encode()
        same = [hmac.compare_digest(found, key) for key in self.keys]  # each of them: time tells nothing
        if not any(same):
            raise key_is_missing()


def reject_cross_site(request: Request) -> None:
    """Refuse what a page of another site has a browser send: on this machine no key would stop it."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise other_site_asks()


def extract_key(request: Request) -> str:
    """The key that a client shows.

    A browser has it as a password. It sends that to us from other sites' pages too, so that it opens only what is
    looked at.
    """
    kind, _, found = request.headers.get("authorization", "").partition(" ")
    if kind == "Basic" and request.method == "GET":
        try:
            return base64.b64decode(found, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return found if kind == "Bearer" else request.headers.get("x-api-key", "")
