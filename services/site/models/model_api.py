"""Endpoints of models below /api: bundles, deployments and their adaptation, for scripts and CI."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.storage.json_decoding import decode_json_bytes
from services.http.responses import typed_response
from services.site.models.adaptation_jobs import AdaptationReply, AdaptBody
from services.site.models.deployments.deployment_messages import (
    BundleReply,
    BundlesReply,
    CanaryBody,
    DeployBody,
    DeploymentReply,
    DeploymentsReply,
    PromoteBody,
    RollBackBody,
)
from services.site.models.deployments.deployment_states import build_deployment_reply
from services.site.models.model_desk import ModelDesk
from services.site.roles import Role
from services.site.site_routes import ApiDescription, SiteRoute, api_route

REFUSALS = (400, 404, 409, 503)
NAMED = "/api/deployments/{name}"


class ModelApi:
    """Handlers of the endpoints of models below /api."""

    def __init__(self, desk: ModelDesk) -> None:
        self.desk = desk

    def routes(self) -> list[SiteRoute]:
        """Return the route of each endpoint with its description."""
        return [
            describe_reading_route(
                "GET /api/bundles", self.list_bundles, "List the bundles below the results folder", BundlesReply
            ),
            describe_reading_route(
                "GET /api/bundles/{path:path}", self.get_bundle, "Return one bundle", BundleReply, (404,)
            ),
            describe_reading_route(
                "GET /api/deployments", self.list_deployments, "List the deployments", DeploymentsReply
            ),
            describe_reading_route(f"GET {NAMED}", self.get_deployment, "Return a deployment", DeploymentReply, (404,)),
            describe_reading_route(
                f"GET {NAMED}/adaptation", self.get_adaptation, "Return its adaptation", AdaptationReply, (404,)
            ),
            *self.change_routes(),
        ]

    def change_routes(self) -> list[SiteRoute]:
        """Return the routes of the endpoints that change something, which need the role `run`."""
        return [
            describe_changing_route("POST /api/deployments", self.post_deployment, "Deploy a bundle", DeployBody),
            describe_changing_route(f"DELETE {NAMED}", self.delete_deployment, "End a deployment; its captures stay"),
            describe_changing_route(f"POST {NAMED}/canary", self.post_canary, "Start a canary", CanaryBody),
            describe_changing_route(f"DELETE {NAMED}/canary", self.delete_canary, "Stop the canary"),
            describe_changing_route(
                f"POST {NAMED}/promote", self.post_promote, "Promote the canary or a bundle", PromoteBody
            ),
            describe_changing_route(
                f"POST {NAMED}/roll-back", self.post_roll_back, "Return to the previous bundle", RollBackBody
            ),
            describe_changing_route(
                f"POST {NAMED}/adapt", self.post_adapt, "Adapt the model, without swapping it", AdaptBody
            ),
            describe_changing_route(f"DELETE {NAMED}/adaptation", self.delete_adaptation, "Dismiss the adapted model"),
        ]

    async def list_bundles(self, _: Request) -> Response:
        """Answer GET /api/bundles: all bundles."""
        return typed_response(BundlesReply(bundles=await asyncio.to_thread(self.desk.list_bundles)))

    async def get_bundle(self, request: Request) -> Response:
        """Answer GET /api/bundles/PATH: one bundle."""
        return typed_response(await asyncio.to_thread(self.desk.find_bundle, request.path_params["path"]))

    async def list_deployments(self, _: Request) -> Response:
        """Answer GET /api/deployments: all deployments."""
        looks = await asyncio.to_thread(self.desk.states.list_looks)
        return typed_response(DeploymentsReply(deployments=[*map(build_deployment_reply, looks)]))

    async def get_deployment(self, request: Request) -> Response:
        """Answer GET /api/deployments/NAME: one deployment."""
        return typed_response(await asyncio.to_thread(self.desk.read_deployment, request.path_params["name"]))

    async def get_adaptation(self, request: Request) -> Response:
        """Answer GET /api/deployments/NAME/adaptation: null if there is none."""
        return typed_response(await asyncio.to_thread(self.desk.read_adaptation, request.path_params["name"]))

    async def post_deployment(self, request: Request) -> Response:
        """Answer POST /api/deployments: deploy a bundle."""
        body = await read_typed_body(request, DeployBody)
        deployment = await asyncio.to_thread(self.desk.manager.deploy_bundle, body)
        return await self._answer_changed(deployment.name)

    async def delete_deployment(self, request: Request) -> Response:
        """Answer DELETE /api/deployments/NAME with the deployment as it was."""
        name = request.path_params["name"]
        reply = await asyncio.to_thread(self.desk.read_deployment, name)
        await asyncio.to_thread(self.desk.manager.undeploy, name)
        self.desk.states.forget_looks()
        return typed_response(reply)

    async def post_canary(self, request: Request) -> Response:
        """Answer POST /api/deployments/NAME/canary: start a canary."""
        body = await read_typed_body(request, CanaryBody)
        return await self._change(request, self.desk.manager.start_canary, body.bundle, body.share)

    async def delete_canary(self, request: Request) -> Response:
        """Answer DELETE /api/deployments/NAME/canary: stop the canary."""
        return await self._change(request, self.desk.manager.stop_canary)

    async def post_promote(self, request: Request) -> Response:
        """Answer POST /api/deployments/NAME/promote: let a bundle answer all."""
        body = await read_typed_body(request, PromoteBody)
        if body.bundle is None:
            return await self._change(request, self.desk.manager.promote_canary)
        return await self._change(request, self.desk.manager.promote_bundle, body.bundle)

    async def post_roll_back(self, request: Request) -> Response:
        """Answer POST /api/deployments/NAME/roll-back: return to the previous bundle."""
        body = await read_typed_body(request, RollBackBody)
        return await self._change(request, self.desk.manager.roll_back, body.bundle)

    async def post_adapt(self, request: Request) -> Response:
        """Answer POST /api/deployments/NAME/adapt: start its adaptation."""
        body = await read_typed_body(request, AdaptBody)
        return await self._change(request, self.desk.adaptations.start_adaptation, body, request.state.viewer.name)

    async def delete_adaptation(self, request: Request) -> Response:
        """Answer DELETE /api/deployments/NAME/adaptation: dismiss the adapted model."""
        return await self._change(request, self.desk.adaptations.dismiss_adaptation)

    async def _change(self, request: Request, change: Callable[..., Any], *arguments: Any) -> Response:
        name = request.path_params["name"]
        await asyncio.to_thread(change, name, *arguments)
        return await self._answer_changed(name)

    async def _answer_changed(self, name: str) -> Response:
        self.desk.states.forget_looks()
        return typed_response(await asyncio.to_thread(self.desk.read_deployment, name))


async def read_typed_body(request: Request, kind: Any) -> Any:
    """Read the JSON body of a request as a `kind`; an empty one stands for an empty object."""
    content = await request.body() or b"{}"
    return decode_json_bytes(content, kind, code="option-format", problem="cannot read the request")


def describe_reading_route(
    endpoint: str, handler: Any, summary: str, reply: Any, rejections: tuple[int, ...] = ()
) -> SiteRoute:
    """Return the route of an endpoint that only reads."""
    description = ApiDescription(summary=summary, returns=summary, reply=reply, rejections=rejections)
    return api_route(endpoint, handler, Role.VIEW, description)


def describe_changing_route(endpoint: str, handler: Any, summary: str, body: Any = None) -> SiteRoute:
    """Return the route of an endpoint that changes a deployment, and answers with it."""
    description = ApiDescription(
        summary=summary, returns="the deployment", reply=DeploymentReply, body=body, rejections=REFUSALS
    )
    return api_route(endpoint, handler, Role.RUN, description)
