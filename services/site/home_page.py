"""Home page: what the cluster does, jobs in progress, models served, newest results, and what waits for a person."""

import asyncio
import time
from collections.abc import Iterable, Sequence

from starlette.requests import Request
from starlette.responses import Response

from services.site.rendering import PageRenderer
from services.site.site_parts import HomeItem, HomeLists, SitePart
from services.site.site_routes import SiteRoute, page_route

HOME_CACHE_SECONDS = 2.0  # for so long, what the parts tell is shown to all who look


class HomePage:
    """Handlers of the home page and of its updates."""

    def __init__(self, parts: Sequence[SitePart], renderer: PageRenderer) -> None:
        self.parts, self.renderer = parts, renderer
        self.lock = asyncio.Lock()
        self.cached_lists: tuple[float, HomeLists] = (-HOME_CACHE_SECONDS, HomeLists())

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the home page."""
        return [page_route("/", self.get_home), page_route("/home/now", self.get_update)]

    async def get_home(self, request: Request) -> Response:
        """Answer GET /: the home page."""
        return self.renderer.render_page(request, "home.html", lists=await self.collect_lists())

    async def get_update(self, request: Request) -> Response:
        """Answer GET /home/now: the part of the home page that changes."""
        return self.renderer.render_page(request, "home_now.html", lists=await self.collect_lists())

    async def collect_lists(self) -> HomeLists:
        """Return what all parts tell; all requests within `HOME_CACHE_SECONDS` share one answer."""
        async with self.lock:
            read_at, lists = self.cached_lists
            if time.monotonic() - read_at >= HOME_CACHE_SECONDS:
                lists = await asyncio.to_thread(self.join_lists)
                self.cached_lists = time.monotonic(), lists
            return lists

    def join_lists(self) -> HomeLists:
        """Return the lines of all parts, in the order of the parts."""
        lists = [part.list_home_items() for part in self.parts]
        return HomeLists(
            cluster=next((entry.cluster for entry in lists if entry.cluster), ""),
            running=join_items(entry.running for entry in lists),
            models=join_items(entry.models for entry in lists),
            for_a_person=join_different_pages([entry.for_a_person for entry in lists]),
            results=join_items(entry.results for entry in lists),
        )


def join_items(groups: Iterable[Sequence[HomeItem]]) -> tuple[HomeItem, ...]:
    """Return the lines of several parts as one sequence."""
    return tuple(item for group in groups for item in group)


def join_different_pages(groups: Sequence[Sequence[HomeItem]]) -> tuple[HomeItem, ...]:
    """Return the lines of several parts without those of a page that a part before has named, such as a new plan."""
    items: list[HomeItem] = []
    for group in groups:
        named = {item.href for item in items}
        items += [item for item in group if item.href not in named]
    return tuple(items)
