"""Part of the site about experiments and plans."""

from urllib.parse import quote

from dashboards.theme import format_utc
from services.site.experiments.experiment_api import ExperimentApi
from services.site.experiments.experiment_pages import ExperimentPages
from services.site.experiments.index_columns import format_status
from services.site.experiments.record_index import RecordIndex
from services.site.figures import figure_routes
from services.site.plans.plan_api import PlanApi
from services.site.plans.plan_desk import PlanDesk
from services.site.plans.plan_pages import PlanPages
from services.site.site_parts import HomeItem, HomeLists, SiteContext
from services.site.site_routes import SiteRoute

MAX_HOME_PLANS, MAX_HOME_RESULTS = 3, 5
PLANS_TO_ACCEPT = (
    "SELECT path FROM entries WHERE kind = 'sweep' AND status = 'plan, not confirmed' ORDER BY modified DESC LIMIT ?"
)
NEWEST_RESULTS = """
SELECT path, kind, status, modified FROM entries
WHERE kind <> 'trial' AND path NOT LIKE '%/confirm/%' ORDER BY modified DESC LIMIT ?
"""  # the confirmation run belongs to its sweep


class ExperimentsPart:
    """Pages and endpoints about experiments and plans."""

    def __init__(self, site: SiteContext) -> None:
        self.index = RecordIndex(site.settings.results, site.settings.state_folder)
        desk = PlanDesk(site.settings.results)
        pages = ExperimentPages(site, self.index)
        self.groups = (pages, ExperimentApi(pages), PlanPages(site, desk), PlanApi(desk))
        self.index.wake()

    def routes(self) -> list[SiteRoute]:
        """Return the routes of all pages and endpoints."""
        return [*figure_routes(), *(route for group in self.groups for route in group.routes())]

    def list_home_items(self) -> HomeLists:
        """Return the newest results, and the newest plans that no run has confirmed yet."""
        self.index.wake()
        connection = self.index.connect()
        plans = connection.execute(PLANS_TO_ACCEPT, (MAX_HOME_PLANS,)).fetchall()
        results = connection.execute(NEWEST_RESULTS, (MAX_HOME_RESULTS,)).fetchall()
        detail = "not trained with yet"
        return HomeLists(
            for_a_person=[HomeItem(text=f"plan of {p}", href=f"/plan/{quote(p)}", detail=detail) for (p,) in plans],
            results=[describe_result(*row) for row in results],
        )


def describe_result(path: str, kind: str, status: str | None, modified: float) -> HomeItem:
    """Return the line of a result: what it is, how it ended and when it was written."""
    outcome = f"{format_status(status)}, " if status else ""
    detail = f"{outcome}{format_utc(modified)} UTC"
    return HomeItem(text=f"{kind} {path}", href=f"/experiments/{quote(path)}", detail=detail)
