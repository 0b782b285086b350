"""Pages of models: bundles with their cards, deployments with their state, and a page to try one."""

import asyncio
import time

from starlette.requests import Request
from starlette.responses import Response

from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from services.site.models.deployments.deployment_states import DeploymentLook, build_verdict_reply, service_url
from services.site.models.deployments.verdict_timeline import list_verdict_spans
from services.site.models.model_desk import ModelDesk
from services.site.models.timeline_picture import TimelinePicture, draw_timeline
from services.site.rendering import PageRenderer
from services.site.site_routes import SiteRoute, page_route


class ModelPages:
    """Handlers of the pages that only show something."""

    def __init__(self, desk: ModelDesk, renderer: PageRenderer) -> None:
        self.desk, self.renderer = desk, renderer

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the pages."""
        return [
            page_route("/models", self.get_models),
            page_route("/models/now", self.get_models_update),
            page_route("/models/bundles/{path:path}", self.get_bundle),
            page_route("/models/{name}", self.get_deployment),
            page_route("/models/{name}/now", self.get_deployment_update),
            page_route("/models/{name}/adaptation", self.get_adaptation_update),
        ]

    async def get_models(self, request: Request) -> Response:
        """Answer GET /models: what is served, and all bundles."""
        looks = await asyncio.to_thread(self.desk.states.list_looks)
        bundles = await asyncio.to_thread(self.desk.list_bundles)
        return self.renderer.render_page(request, "models.html", looks=looks, bundles=bundles)

    async def get_models_update(self, request: Request) -> Response:
        """Answer GET /models/now: the part of the page that changes."""
        looks = await asyncio.to_thread(self.desk.states.list_looks)
        return self.renderer.render_page(request, "models_now.html", looks=looks)

    async def get_bundle(self, request: Request) -> Response:
        """Answer GET /models/bundles/PATH: the card of a bundle, and a form to deploy it."""
        path = request.path_params["path"]
        entry = await asyncio.to_thread(self.desk.catalog.find_bundle, path)
        bundle = await asyncio.to_thread(self.desk.find_bundle, path)
        card = await asyncio.to_thread(self.desk.catalog.read_card, path)
        return self.renderer.render_page(request, "bundle.html", bundle=bundle, manifest=entry.manifest, card=card)

    async def get_deployment(self, request: Request) -> Response:
        """Answer GET /models/NAME: the state of a deployment, and what can be done with it."""
        look = await asyncio.to_thread(self.desk.states.find_look, request.path_params["name"])
        others = await asyncio.to_thread(self.desk.list_other_bundles, look.deployment)
        adaptation = await asyncio.to_thread(self.desk.adaptations.read_adaptation, look.deployment)
        return self.renderer.render_page(
            request, "deployment.html", **describe_look(look), others=others, adaptation=adaptation
        )

    async def get_deployment_update(self, request: Request) -> Response:
        """Answer GET /models/NAME/now: the part of the page that changes."""
        look = await asyncio.to_thread(self.desk.states.find_look, request.path_params["name"])
        return self.renderer.render_page(request, "deployment_now.html", **describe_look(look))

    async def get_adaptation_update(self, request: Request) -> Response:
        """Answer GET /models/NAME/adaptation: the part of the page that says what became of an adaptation."""
        look = await asyncio.to_thread(self.desk.states.find_look, request.path_params["name"])
        adaptation = await asyncio.to_thread(self.desk.adaptations.read_adaptation, look.deployment)
        return self.renderer.render_page(request, "adaptation.html", **describe_look(look), adaptation=adaptation)


def describe_look(look: DeploymentLook) -> dict[str, object]:
    """Return what the templates show of a deployment."""
    models = look.service.models
    status = next((model for model in models.models if model.name == look.deployment.model), None) if models else None
    return {
        "look": look,
        "deployment": look.deployment,
        "url": service_url(look.deployment),
        "status": status,
        "verdict": build_verdict_reply(look.service.verdict) if look.service.verdict else None,
        "takes_pictures": status is not None and status.kind in KINDS_OF_IMAGES,
        "timeline": draw_look_timeline(look),
    }


def draw_look_timeline(look: DeploymentLook) -> TimelinePicture | None:
    """Return the verdicts of a deployment since its bundle answers; None without a verdict."""
    if look.service.verdict is None or not look.deployment.history:
        return None
    changes = [change for change in look.deployment.history if change.kind in ("deploy", "promote", "roll back")]
    begin, now = changes[-1].at if changes else look.deployment.history[0].at, time.time()
    return draw_timeline(list_verdict_spans(look.service.events, look.service.verdict.state, begin, now))
