"""ASGI application of the labelling page."""

import hmac
import logging
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from services.http.auth import ApiKeyAuth, build_challenge
from services.http.errors import INTERNAL_ERROR_MESSAGE, RequestRejected, page_is_unknown
from services.http.request_body import BodyReader
from services.http.responses import json_response
from services.labelling.routes import LabellingRoutes
from services.labelling.session import LabelSession
from services.limits import Limits

LABELLING_LIMITS = Limits(body_bytes=64 << 20, bodies_bytes=256 << 20, read_seconds=120.0)
"""photographs of a phone are added over a slow network"""
ASSET_TYPES = {
    "page.css": "text/css",
    "label.css": "text/css",
    "label.js": "text/javascript",
    "label_boxes.js": "text/javascript",
    "label_pointer.js": "text/javascript",
    "label_sources.js": "text/javascript",
}
"""files of the page beside its HTML, with their types"""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

PAGE_TOKEN_PURPOSE = b"token of the labelling page"  # the key itself does not follow from it

logger = logging.getLogger(__name__)


class LabellingApplication:
    """Page on which people label pictures, with its API."""

    def __init__(self, session: LabelSession, api_keys: tuple[str, ...] = ()) -> None:
        """Build the routes; with API keys, each request must carry one.

        A browser sends a password with GET only, so the page itself gets a token for its other requests: pages of
        other sites cannot read it. Replicas, and a server that was started anew, take each other's tokens.
        """
        self.session = session
        self.page_token = hmac.new(api_keys[0].encode(), PAGE_TOKEN_PURPOSE, "sha256").hexdigest() if api_keys else ""
        auth = ApiKeyAuth((*api_keys, self.page_token) if api_keys else ())
        routes = [
            Route("/", self.get_page),
            Route("/assets/{name}", self.get_asset),
            *LabellingRoutes(session, BodyReader(LABELLING_LIMITS)).routes(),
        ]
        self.app = Starlette(
            routes=[*map(auth.protect, routes)],
            exception_handlers={
                RequestRejected: answer_rejected,
                HTTPException: answer_unknown,
                ClientDisconnect: answer_disconnected,
                Exception: answer_failure,
            },
        )
        self.app.router.redirect_slashes = False

    async def get_page(self, _: Request) -> Response:
        """Answer GET /: the page."""
        return render_label_page(self.session, token=self.page_token)

    async def get_asset(self, request: Request) -> Response:
        """Answer GET /assets/NAME: a style sheet or a script of the page."""
        return answer_asset(request.path_params["name"])


def render_label_page(session: LabelSession, *, token: str = "", csrf_token: str = "", home: str = "") -> Response:
    """Render the page of a session; its requests carry the token as a key, or the CSRF token of a site.

    `home` is where a link leads back to; a page that stands alone has none.
    """
    html = load_page_template().render(**session.page_facts(), token=token, csrf_token=csrf_token, home=home)
    headers = {"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
    return HTMLResponse(html, headers=headers | {"permissions-policy": "camera=(self)"})


def answer_asset(name: str) -> Response:
    """Return a style sheet or a script of the page."""
    if name not in ASSET_TYPES:
        raise HTTPException(404)
    headers = {"cache-control": "private, no-cache", "x-content-type-options": "nosniff"}
    return Response(read_asset(name), media_type=ASSET_TYPES[name], headers=headers)


def load_page_template() -> Template:
    """Load the page's template, with escaping of everything that is inserted."""
    loader = PackageLoader("dashboards")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("label.html")


@cache
def read_asset(name: str) -> bytes:
    """Read a file of the page."""
    return files("dashboards").joinpath("templates", name).read_bytes()


async def answer_rejected(request: Request, error: Exception) -> Response:
    """Answer a rejected request with its status and a sentence."""
    if not isinstance(error, RequestRejected):
        raise error
    headers = build_challenge(request) if error.status == 401 else None
    return json_response({"error": error.message}, error.status, headers)


async def answer_unknown(request: Request, error: Exception) -> Response:
    """Answer a request for what the page does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return json_response({"error": page_is_unknown(request.url.path).message}, status)


async def answer_disconnected(_: Request, __: Exception) -> Response:
    """Answer nobody: the client has gone, such as a phone that left the network while it sent a picture."""
    return Response(status_code=499)


async def answer_failure(request: Request, error: Exception) -> Response:
    """Answer a request at which the page itself failed."""
    logger.error("cannot answer %s %s: internal error", request.method, request.url.path, exc_info=error)
    return json_response({"error": INTERNAL_ERROR_MESSAGE}, 500)
