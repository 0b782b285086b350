"""Parts of which the site is composed, and what a part gives to the home page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jobs.site_ray.ray_dashboard import RayDashboard
from services.site.jobs_on_ray.job_desk import JobDesk
from services.site.rendering import PageRenderer
from services.site.settings import SiteSettings
from services.site.site_routes import SiteRoute


@dataclass(frozen=True, kw_only=True)
class HomeItem:
    """Line of the home page: what it is about, a link, and its state in a few words."""

    text: str
    href: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class HomeLists:
    """Lines that a part adds to the home page."""

    cluster: str = ""
    """nodes and slots, and how many of them are busy, in words"""
    running: Sequence[HomeItem] = ()
    """jobs in progress"""
    models: Sequence[HomeItem] = ()
    """models that are served, with rate, latency and verdict"""
    for_a_person: Sequence[HomeItem] = ()
    """what waits for somebody's decision or work"""
    results: Sequence[HomeItem] = ()
    """newest results"""


@dataclass(frozen=True, kw_only=True)
class SiteContext:
    """What every part of the site works with."""

    settings: SiteSettings
    renderer: PageRenderer
    ray: RayDashboard | None
    """the Ray that runs jobs and models; None if the site shows results alone"""
    jobs: JobDesk
    """the jobs that were started on the site"""


class SitePart(Protocol):
    """Part of the site: pages, actions and endpoints about one subject."""

    def routes(self) -> list[SiteRoute]:
        """Return the routes of its pages, actions and endpoints."""

    def list_home_items(self) -> HomeLists:
        """Return what the home page shows of it; called in a thread, at most every two seconds."""
