"""Page of a plan within limits: sliders, the front of time against cost, and the plan in words."""

import asyncio
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from dashboards.page import Panel
from dashboards.panels.pareto_front import READING_OF_FRONT, mark_limited_plan, pareto_figure
from dashboards.reports import plan_paragraphs, warning_notes
from equipoise.errors import EquipoiseError
from equipoise.planning.document import PlanDocument
from jobs.cli.plan_options import list_plan_settings
from services.site.figures import answer_with_figures
from services.site.plans.plan_desk import LimitedPlan, PlanDesk
from services.site.plans.plan_limits import LimitTexts, build_sliders
from services.site.site_parts import SiteContext
from services.site.site_routes import SiteRoute, page_route

FRONT_CAPTION = "Time to the target against cost of every setting; lower left is better, the star is this plan."


class PlanPages:
    """Handlers of the page of a plan."""

    def __init__(self, site: SiteContext, desk: PlanDesk) -> None:
        self.site, self.desk = site, desk

    def routes(self) -> list[SiteRoute]:
        """Return the route of the page, which also answers with the part that changes."""
        return [page_route("/plan/{name:path}", self.get_plan)]

    async def get_plan(self, request: Request) -> Response:
        """Answer GET /plan/PATH: the plan within the limits of the query."""
        name = request.path_params["name"]
        texts = LimitTexts.from_values(request.query_params)
        content = await asyncio.to_thread(self._build_content, name, texts)
        is_part = "hx-request" in request.headers
        # the range of the budget follows the price; no other slider is replaced while somebody moves it
        content["refresh_budget"] = is_part and request.query_params.get("priced", "") != texts.price
        template = "plan_result.html" if is_part else "plan.html"
        return await answer_with_figures(self.site.renderer, request, template, **content)

    def _build_content(self, name: str, texts: LimitTexts) -> dict[str, Any]:
        """Return what the page shows; limits that are refused leave the plan out and say why."""
        problem = ""
        try:
            limits = texts.parse()
            plan = self.desk.build_plan(name, limits)
        except EquipoiseError as error:
            if error.code in ("plan-missing", "path-missing", "path-kind", "table-invalid"):
                raise
            problem, limits = str(error), LimitTexts().parse()
            plan = self.desk.build_plan(name, limits)
        document = plan.document
        return {
            "name": name,
            "price": texts.price,
            "problem": problem,
            "plan": plan,
            "sliders": build_sliders(texts, plan.ranges, limits.cost.prices.otherwise),
            "paragraphs": describe_limited_plan(document),
            "warnings": [note.text for note in warning_notes(document)],  # type: ignore[union-attr]  # they are notes
            "panel": None if problem else build_front_panel(document),
            "train_href": build_train_link(name, plan),
            "is_moved": not limits.links.is_empty,
        }


def describe_limited_plan(document: PlanDocument) -> list[str]:
    """Return the plan in words, without the status of a plan that is trained with."""
    paragraphs = plan_paragraphs(document)
    return paragraphs[1:] if document.plan else [*document.warnings[:1]]


def build_front_panel(document: PlanDocument) -> Panel | None:
    """Build the figure of time against cost, with the plan marked; None without settings."""
    if not document.options:
        return None
    figure = mark_limited_plan(pareto_figure(document), document)
    return Panel(name="front", figure=figure, caption=FRONT_CAPTION, reading=READING_OF_FRONT.rpartition(";")[0] + ".")


def build_train_link(name: str, plan: LimitedPlan) -> str | None:
    """Return the address of the training form filled with a plan; None without one.

    The plan that the sweep has stored is given by its folder, any other by its settings.
    """
    entry, setup = plan.document.plan, plan.stored.setup if plan.stored else None
    if entry is None:
        return None
    workload = {"workload": setup.workload} if setup and setup.workload else {}
    if plan.is_stored_plan:
        return f"/new/train?{urlencode({**workload, 'plan': name})}"
    settings = {option.replace("_", "-"): str(value) for option, value in list_plan_settings(entry).items()}
    return f"/new/train?{urlencode({**workload, **settings})}"


def build_plan_link(name: str, texts: LimitTexts | None = None) -> str:
    """Return the address of the page of a plan."""
    values = texts.as_values() if texts else {}
    return f"/plan/{quote(name)}" + (f"?{urlencode(values)}" if values else "")
