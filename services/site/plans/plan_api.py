"""Endpoint of the API about plans within limits."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dashboards.page import to_plain_json
from equipoise.planning.replanning.replanner import LimitRange
from services.http.responses import json_response
from services.site.plans.message_types import LimitedPlanReply, LimitRangeReply
from services.site.plans.plan_desk import LimitedPlan, PlanDesk
from services.site.plans.plan_limits import LimitTexts
from services.site.roles import Role
from services.site.site_routes import ApiDescription, SiteRoute, api_route

LIMIT_PARAMETERS = {
    "deadline": "longest time to the target, such as 90s, 15m or 2h",
    "budget": "dollars that the training may cost, such as 40usd",
    "price": "dollars of a worker for an hour, such as 3usd; by kind of worker as a10=1.2usd h100=4usd",
    "nodes": "most nodes",
    "rate": "Mbit/s of the slowest links",
    "delay": "milliseconds a message on the slowest links",
}


class PlanApi:
    """Handler of the endpoint /api/plan."""

    def __init__(self, desk: PlanDesk) -> None:
        self.desk = desk

    def routes(self) -> list[SiteRoute]:
        """Return the route of the endpoint."""
        return [
            api_route("GET /api/plan/{name:path}", self.get_plan, Role.VIEW, ApiDescription(
                summary="the plan of a sweep within limits", returns="the plan, and between which limits it changes",
                reply=LimitedPlanReply, query=LIMIT_PARAMETERS, rejections=(400, 404))),
        ]  # fmt: skip

    async def get_plan(self, request: Request) -> Response:
        """Answer GET /api/plan/PATH: the plan within the limits of the query."""
        name, limits = request.path_params["name"], LimitTexts.from_values(request.query_params).parse()
        plan = await asyncio.to_thread(self.desk.build_plan, name, limits)
        return json_response(to_plain_json(msgspec.to_builtins(describe_limited_plan_reply(name, plan))))


def describe_limited_plan_reply(name: str, plan: LimitedPlan) -> LimitedPlanReply:
    """Describe a plan within limits for the API."""
    document, ranges = plan.document, plan.ranges
    return LimitedPlanReply(
        name=name,
        plan=document.plan,
        runner_up=document.runner_up,
        front=[*document.front],
        warnings=[*document.warnings],
        is_stored_plan=plan.is_stored_plan,
        nodes=[*ranges.nodes],
        deadline_seconds=describe_range(ranges.deadline_seconds),
        bits_per_second=describe_range(ranges.bits_per_second),
        delay_seconds=describe_range(ranges.delay_seconds),
    )


def describe_range(limit: LimitRange | None) -> LimitRangeReply | None:
    """Describe a range for the API."""
    return None if limit is None else LimitRangeReply(low=limit.low, high=limit.high, measured=limit.measured)
