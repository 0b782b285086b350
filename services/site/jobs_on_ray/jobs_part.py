"""Part of the site about jobs: forms, pages and the API."""

from services.site.jobs_on_ray.job_api import JobApi
from services.site.jobs_on_ray.job_pages import JobPages
from services.site.site_parts import HomeLists, SiteContext
from services.site.site_routes import SiteRoute


class JobsPart:
    """Forms of the commands, the jobs that were started with them, and the same by the API."""

    def __init__(self, site: SiteContext) -> None:
        self.pages, self.api = JobPages(site), JobApi(site)

    def routes(self) -> list[SiteRoute]:
        """Return the routes of pages, actions and endpoints."""
        return [*self.pages.routes(), *self.api.routes()]

    def list_home_items(self) -> HomeLists:
        """Return what the home page shows of jobs."""
        return self.pages.list_home_items()
