"""Page on which a person tries a model of images: a picture from a file or the camera, with the answer drawn on it."""

from functools import cache

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dashboards.page import load_templates
from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from services.serving.models import ModelRegistry

TRY_PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob: data:; media-src blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class TryPageRoutes:
    """Handler of the page to try a model."""

    def __init__(self, model_registry: ModelRegistry, requires_key: bool) -> None:
        self.model_registry = model_registry
        self.requires_key = requires_key

    def routes(self) -> list[Route]:
        """Return the route of the page."""
        return [Route("/try", self.get_page)]

    async def get_page(self, _: Request) -> Response:
        """Answer GET /try: the page, which asks the models of images that are served."""
        models = self.model_registry.models.values()
        names = [model.name for model in models if model.current.bundle.kind in KINDS_OF_IMAGES]
        headers = {"content-security-policy": TRY_PAGE_POLICY, "cache-control": "no-store"}
        return HTMLResponse(render_try_page(tuple(names), self.requires_key), headers=headers)


@cache
def render_try_page(model_names: tuple[str, ...], requires_key: bool) -> str:
    """Return the page for models of images by these names."""
    template = load_templates().get_template("try.html")
    return template.render(model_names=list(model_names), requires_key=requires_key)
