"""Labels' part of the site: its pages and endpoints."""

from services.site.labels.label_api import LabelApi
from services.site.labels.label_pages import LabelPages
from services.site.labels.label_queues import LabelQueues
from services.site.site_parts import HomeLists, SiteContext
from services.site.site_routes import SiteRoute


class LabelsPart:
    """Queues of pictures that people label; which of them wait for a person is said by the models' part."""

    def __init__(self, context: SiteContext) -> None:
        self.queues = LabelQueues(context.settings.results)
        self.pages = LabelPages(self.queues, context.renderer)

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the pages and endpoints."""
        return [*self.pages.routes(), *LabelApi(self.queues, self.pages).routes()]

    def list_home_items(self) -> HomeLists:
        """Return nothing: captures of a drift are listed with their deployment."""
        return HomeLists()
