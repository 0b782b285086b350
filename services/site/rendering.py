"""Rendering of the site's pages: templates, the navigation, assets and the headers that keep scripts out."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dashboards.page import escape_surrogates
from dashboards.theme import format_percent, format_seconds, format_significant, format_utc
from services.http.responses import compress_response

ASSET_TYPES = {
    "page.css": "text/css",
    "site/site.css": "text/css",
    "site/figures.js": "text/javascript",
    "site/htmx.min.js": "text/javascript",
    "site/sliders.js": "text/javascript",
}
"""files beside the pages, below dashboards/templates, with their types; parts add theirs"""
SITE_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": SITE_CONTENT_SECURITY_POLICY,
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, kw_only=True)
class NavigationLink:
    """Entry of the navigation at the top of every page."""

    text: str
    href: str


NAVIGATION = (
    NavigationLink(text="Home", href="/"),
    NavigationLink(text="Experiments", href="/experiments"),
    NavigationLink(text="New", href="/new"),
    NavigationLink(text="Jobs", href="/jobs"),
    NavigationLink(text="Models", href="/models"),
    NavigationLink(text="Labels", href="/labels"),
)


class PageRenderer:
    """Templates of the site; all that is inserted is escaped."""

    def __init__(self, requires_key: bool) -> None:
        self.requires_key = requires_key
        self.environment = Environment(
            loader=PackageLoader("dashboards"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= {
            "seconds": format_seconds,
            "percent": format_percent,
            "significant": format_significant,
            "utc": format_utc,
        }

    def render_page(self, request: Request, template: str, status: int = 200, /, **content: Any) -> Response:
        """Render a template below `site/` with what it shows; whole pages extend `site/site.html`."""
        shared = {
            "viewer": getattr(request.state, "viewer", None),
            "navigation": NAVIGATION,
            "current_path": request.url.path,
            "requires_key": self.requires_key,
        }
        text = self.environment.get_template(f"site/{template}").render(**shared, **content)
        return compress_response(HTMLResponse(escape_surrogates(text), status, PAGE_HEADERS), request)


@cache
def read_site_asset(name: str) -> bytes:
    """Read a file beside the pages."""
    return files("dashboards").joinpath("templates", name).read_bytes()


async def get_site_asset(request: Request) -> Response:
    """Answer GET /assets/NAME: a style sheet or a script."""
    name = request.path_params["name"]
    if name not in ASSET_TYPES:
        raise HTTPException(404)
    headers = {"cache-control": "private, max-age=300", "x-content-type-options": "nosniff"}
    return compress_response(Response(read_site_asset(name), media_type=ASSET_TYPES[name], headers=headers), request)
