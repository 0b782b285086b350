"""Part of the site about experiments and plans."""

from urllib.parse import quote

from services.site.experiments.experiment_api import ExperimentApi
from services.site.experiments.experiment_pages import ExperimentPages
from services.site.experiments.record_index import RecordIndex
from services.site.figures import figure_routes
from services.site.plans.plan_api import PlanApi
from services.site.plans.plan_desk import PlanDesk
from services.site.plans.plan_pages import PlanPages
from services.site.site_parts import HomeItem, HomeLists, SiteContext
from services.site.site_routes import SiteRoute

MAX_HOME_PLANS = 3
PLANS_TO_ACCEPT = (
    "SELECT path FROM entries WHERE kind = 'sweep' AND status = 'plan, not confirmed' ORDER BY modified DESC LIMIT ?"
)


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
        """Return the newest plans that no run has confirmed yet."""
        self.index.wake()
        rows = self.index.connect().execute(PLANS_TO_ACCEPT, (MAX_HOME_PLANS,)).fetchall()
        detail = "not trained with yet"
        items = [HomeItem(text=f"plan of {path}", href=f"/plan/{quote(path)}", detail=detail) for (path,) in rows]
        return HomeLists(for_a_person=items)
