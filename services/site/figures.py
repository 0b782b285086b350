"""Figures on pages of the site: plotly.js as a file of its own, and figures as data that a script draws."""

import asyncio
import gzip
from functools import cache
from typing import Any

import plotly
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from starlette.requests import Request
from starlette.responses import Response

from dashboards.page import Panel, escape_surrogates
from services.site.rendering import SITE_CONTENT_SECURITY_POLICY, PageRenderer
from services.site.site_routes import SiteRoute, page_route

FIGURE_POLICY = SITE_CONTENT_SECURITY_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""policy of pages with figures: plotly.js writes styles, and no scripts"""
PLOTLY_PATH = f"/figures/plotly-{plotly.__version__}.js"
CACHE_SECONDS = 30 * 86400  # the version is part of the address


async def answer_with_figures(renderer: PageRenderer, request: Request, template: str, **content: Any) -> Response:
    """Render a page that has figures, or a part of one, in a thread: large figures take a while to write."""
    response = await asyncio.to_thread(
        renderer.render_page, request, template, plotly_path=PLOTLY_PATH, figure_data=format_figure_data, **content
    )
    response.headers["content-security-policy"] = FIGURE_POLICY
    return response


def format_figure_data(panel: Panel) -> Markup:
    """Return a figure as JSON for a script element, which no text in it can end."""
    text = escape_surrogates(panel.figure.to_json(validate=False, engine="json"))  # which has null for NaN
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 - JSON without an angle bracket


def figure_routes() -> list[SiteRoute]:
    """Return the route of plotly.js."""
    return [page_route(PLOTLY_PATH, get_plotly)]


async def get_plotly(request: Request) -> Response:
    """Answer GET /figures/plotly-VERSION.js: the library that draws figures."""
    headers = {"cache-control": f"private, max-age={CACHE_SECONDS}, immutable", "x-content-type-options": "nosniff"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(await asyncio.to_thread(compress_plotly), media_type="text/javascript", headers=headers)
    return Response(await asyncio.to_thread(get_plotlyjs), media_type="text/javascript", headers=headers)


@cache
def compress_plotly() -> bytes:
    """Return plotly.js, compressed by gzip."""
    return gzip.compress(get_plotlyjs().encode(), 6, mtime=0)
