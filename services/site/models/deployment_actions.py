"""Actions on models that pages post: deploy, canary, promote, roll back, undeploy, adapt and try."""

import asyncio
import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_value
from services.site.models.adaptation_jobs import AdaptBody
from services.site.models.deployments.deployment_messages import CanaryBody, DeployBody
from services.site.models.model_desk import ModelDesk
from services.site.models.prediction_view import PredictionView, build_prediction_view, read_text_request
from services.site.rendering import PageRenderer
from services.site.roles import Role
from services.site.site_routes import SiteRoute, action_route, page_route

MAX_PICTURE_BYTES = 16 << 20


class DeploymentActions:
    """Handlers of the forms of the pages of models."""

    def __init__(self, desk: ModelDesk, renderer: PageRenderer) -> None:
        self.desk, self.renderer = desk, renderer

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the actions."""
        actions = {
            "canary": self.post_canary,
            "stop-canary": self.post_stop_canary,
            "promote": self.post_promote,
            "roll-back": self.post_roll_back,
            "undeploy": self.post_undeploy,
            "reset-drift": self.post_reset_drift,
            "adapt": self.post_adapt,
            "dismiss": self.post_dismiss,
        }
        return [
            action_route("/models/deploy", self.post_deploy, Role.RUN),
            *(action_route(f"/models/{{name}}/{action}", handler, Role.RUN) for action, handler in actions.items()),
            page_route("/models/{name}/try", self.get_try),
            action_route("/models/{name}/try", self.post_try, Role.VIEW, MAX_PICTURE_BYTES),
        ]

    async def post_deploy(self, request: Request) -> Response:
        """Answer POST /models/deploy: start a service of a bundle."""
        form = await request.form()
        body = decode_form(DeployBody, form, numbers=("port", "replicas"), switches=("requires_key",))
        deployment = await asyncio.to_thread(self.desk.manager.deploy_bundle, body)
        self.desk.states.forget_looks()
        return RedirectResponse(f"/models/{quote(deployment.name)}", 303)

    async def post_canary(self, request: Request) -> Response:
        """Answer POST /models/NAME/canary: let a bundle answer a share of the requests."""
        form = await request.form()
        percent = parse_form_number(form, "percent")
        share = {"share": percent / 100} if percent is not None else {}
        body = decode_json_value(
            {"bundle": str(form.get("bundle", "")), **share},
            CanaryBody,
            code="option-range",
            problem="cannot start the canary",
        )
        return await self._change(request, self.desk.manager.start_canary, body.bundle, body.share)

    async def post_stop_canary(self, request: Request) -> Response:
        """Answer POST /models/NAME/stop-canary: let the canary answer no more."""
        return await self._change(request, self.desk.manager.stop_canary)

    async def post_promote(self, request: Request) -> Response:
        """Answer POST /models/NAME/promote: let the canary, or the bundle of the form, answer all requests."""
        bundle = str((await request.form()).get("bundle", ""))
        if bundle:
            return await self._change(request, self.desk.manager.promote_bundle, bundle)
        return await self._change(request, self.desk.manager.promote_canary)

    async def post_roll_back(self, request: Request) -> Response:
        """Answer POST /models/NAME/roll-back: let the previous bundle answer again."""
        bundle = str((await request.form()).get("bundle", "")) or None
        return await self._change(request, self.desk.manager.roll_back, bundle)

    async def post_undeploy(self, request: Request) -> Response:
        """Answer POST /models/NAME/undeploy: end the service."""
        await self._change(request, self.desk.manager.undeploy)
        return RedirectResponse("/models", 303)

    async def post_reset_drift(self, request: Request) -> Response:
        """Answer POST /models/NAME/reset-drift: restart the charts, once a change is known or fixed."""
        return await self._change(request, self._reset_drift)

    async def post_adapt(self, request: Request) -> Response:
        """Answer POST /models/NAME/adapt: start the adaptation as a job."""
        form = await request.form()
        body = decode_form(AdaptBody, form, numbers=("epochs", "workers"), switches=("accept_blur",))
        return await self._change(
            request, self.desk.adaptations.start_adaptation, body, request.state.viewer.name, anchor="#adaptation"
        )

    async def post_dismiss(self, request: Request) -> Response:
        """Answer POST /models/NAME/dismiss: forget the adapted model, whose bundle stays."""
        return await self._change(request, self.desk.adaptations.dismiss_adaptation)

    async def get_try(self, request: Request) -> Response:
        """Answer GET /models/NAME/try: the form that sends a picture, a row or a text to the service."""
        return await self._render_try(request, None)

    async def post_try(self, request: Request) -> Response:
        """Answer POST /models/NAME/try: send it to the service and show its answer."""
        form = await request.form()
        upload, text = form.get("picture"), str(form.get("text", ""))
        picture = await upload.read() if isinstance(upload, UploadFile) else None
        body = picture if picture is not None else read_text_request(text, is_row=form.get("kind") == "table")
        if not body:
            raise EquipoiseError(
                "option-missing", "cannot predict: nothing was sent", "choose or write something first"
            )
        look = await asyncio.to_thread(self.desk.states.find_look, request.path_params["name"])
        service = await asyncio.to_thread(self.desk.states.open_service, look.deployment)
        media_type = "application/json" if picture is None else "application/octet-stream"
        answer = await asyncio.to_thread(service.predict, body, media_type)
        return await self._render_try(request, await asyncio.to_thread(build_prediction_view, answer, picture), text)

    async def _render_try(self, request: Request, view: PredictionView | None, text: str = "") -> Response:
        look = await asyncio.to_thread(self.desk.states.find_look, request.path_params["name"])
        bundle = await asyncio.to_thread(self.desk.catalog.find_bundle, look.deployment.bundle)
        picture = base64.b64encode(view.picture).decode() if view and view.picture else ""
        return self.renderer.render_page(
            request,
            "try_model.html",
            deployment=look.deployment,
            kind=bundle.manifest.kind if bundle.manifest else "image",
            serve=look.serve,
            view=view,
            picture=picture,
            text=text,
        )

    async def _change(
        self, request: Request, change: Callable[..., Any], *arguments: Any, anchor: str = ""
    ) -> Response:
        """Do something to the deployment that the path names, and lead back to its page."""
        name = request.path_params["name"]
        await asyncio.to_thread(change, name, *arguments)
        self.desk.states.forget_looks()
        return RedirectResponse(f"/models/{quote(name)}{anchor}", 303)

    def _reset_drift(self, name: str) -> None:
        self.desk.states.open_service(self.desk.manager.store.find_deployment(name)).reset_drift()


def parse_form_number(form: FormData, name: str) -> float | None:
    """Return the number in a field of a form, None if it is empty; refuse anything else."""
    text = str(form.get(name, "")).strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise EquipoiseError("option-range", f"cannot use {name} {text[:40]!r}: it is not a number") from None


def decode_form(kind: Any, form: FormData, *, numbers: tuple[str, ...], switches: tuple[str, ...]) -> Any:
    """Decode the fields of a form as a body of the API: empty ones are left out, a box that is not checked is false."""
    contents: dict[str, Any] = {}
    for name in kind.__dataclass_fields__:
        if name in switches:
            contents[name] = name in form
        elif name in numbers:
            value = parse_form_number(form, name)
            contents |= {} if value is None else {name: int(value) if value.is_integer() else value}
        elif text := str(form.get(name, "")).strip():
            contents[name] = text
    return decode_json_value(contents, kind, code="option-range", problem="cannot use this form")
