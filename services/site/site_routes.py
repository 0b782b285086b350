"""Routes of the site, each with the role that it needs and, below /api, its description."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.site.roles import Role

Handler = Callable[[Request], Awaitable[Response]]

MAX_BODY_BYTES = 256 << 10  # of a request, unless its route allows more


@dataclass(frozen=True, kw_only=True)
class ApiDescription:
    """Description of an endpoint below /api for the OpenAPI document."""

    summary: str
    returns: str
    reply: Any
    """type of the JSON that it answers with"""
    body: Any = None
    """type of the JSON that it takes; None for an endpoint without a body"""
    query: Mapping[str, str] = field(default_factory=dict)
    """what each parameter of the query means"""
    rejections: tuple[int, ...] = ()
    """statuses with which it refuses, beside 401 and 403"""
    status: int = 200


class SiteRoute(Route):
    """Route with the role that it needs; `access` wraps its handler by it."""

    def __init__(
        self, path: str, handler: Handler, *, role: Role | None, methods: tuple[str, ...], max_body_bytes: int
    ) -> None:
        super().__init__(path, handler, methods=[*methods])
        self.handler, self.role, self.max_body_bytes = handler, role, max_body_bytes
        self.description: ApiDescription | None = None


def page_route(path: str, handler: Handler, role: Role | None = Role.VIEW) -> SiteRoute:
    """Return the route of a page, or of a part of one, that is only read; everyone may read it if `role` is None."""
    return SiteRoute(path, handler, role=role, methods=("GET",), max_body_bytes=0)


def action_route(path: str, handler: Handler, role: Role | None, max_body_bytes: int = MAX_BODY_BYTES) -> SiteRoute:
    """Return the route of a form that a page posts; its CSRF token is checked before the handler is called."""
    return SiteRoute(path, handler, role=role, methods=("POST",), max_body_bytes=max_body_bytes)


def api_route(endpoint: str, handler: Handler, role: Role, description: ApiDescription) -> SiteRoute:
    """Return the route of an endpoint of the API, such as `POST /api/jobs`."""
    method, path = endpoint.split()
    route = SiteRoute(path, handler, role=role, methods=(method,), max_body_bytes=MAX_BODY_BYTES)
    route.description = description
    return route
