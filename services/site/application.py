"""ASGI application of the site, composed of its parts."""

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from equipoise.errors import EquipoiseError
from jobs.site_ray.ray_dashboard import RayDashboard
from services.http.errors import RequestRejected
from services.site.access import SiteAccess
from services.site.api_document import ApiDocument
from services.site.experiments.experiments_part import ExperimentsPart
from services.site.failures import FailureHandlers
from services.site.home_page import HomePage
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.jobs_on_ray.jobs_part import JobsPart
from services.site.labels.labels_part import LabelsPart
from services.site.login_page import LoginPages
from services.site.models.models_part import ModelsPart
from services.site.rendering import PageRenderer, get_site_asset
from services.site.sessions import SessionSigner, load_secret
from services.site.settings import SiteSettings
from services.site.site_parts import SiteContext, SitePart
from services.site.site_routes import page_route

SECRET_FILE = "session-secret"  # noqa: S105 - the name of its file

PartBuilder = Callable[[SiteContext], SitePart]


class SiteApplication:
    """The site: all pages, actions and endpoints behind one check of who may use them."""

    def __init__(self, settings: SiteSettings, part_builders: Sequence[PartBuilder]) -> None:
        role_keys = settings.read_role_keys()
        access = SiteAccess(role_keys, SessionSigner(load_secret(settings.state_folder / SECRET_FILE)))
        renderer = PageRenderer(access.requires_key)
        ray = RayDashboard(settings.ray_dashboard, settings.ray_token) if settings.ray_dashboard else None
        jobs = JobDesk(ray, settings.results, settings.state_folder)
        self.context = SiteContext(settings=settings, renderer=renderer, ray=ray, jobs=jobs)
        self.parts = [build_part(self.context) for build_part in part_builders]
        routes = [
            page_route("/assets/{name:path}", get_site_asset, role=None),
            *LoginPages(access, renderer, bool(settings.certfile)).routes(),
            *HomePage(self.parts, renderer).routes(),
            *(route for part in self.parts for route in part.routes()),
        ]
        self.api_document = ApiDocument(routes, access.requires_key)
        routes += self.api_document.routes()
        self.app = Starlette(routes=[*map(access.protect, routes)])
        self.add_failure_handlers(FailureHandlers(renderer))
        self.app.router.redirect_slashes = False  # a redirect would lead wherever the client's Host header says

    def add_failure_handlers(self, handlers: FailureHandlers) -> None:
        """Answer each kind of failure in the site's own form."""
        for kind, handler in (
            (EquipoiseError, handlers.answer_refused),
            (RequestRejected, handlers.answer_rejected),
            (HTTPException, handlers.answer_unknown),
            (ClientDisconnect, handlers.answer_disconnected),
            (Exception, handlers.answer_failure),
        ):
            self.app.add_exception_handler(kind, handler)


def list_part_builders() -> list[PartBuilder]:
    """Return the builders of all parts of the site, in the order in which the home page shows them."""
    return [JobsPart, ExperimentsPart, ModelsPart, LabelsPart]
