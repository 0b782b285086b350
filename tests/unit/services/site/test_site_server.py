"""The site's server: how many people may wait for something slow before others wait too."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from starlette.responses import PlainTextResponse

from services.site.site_parts import HomeLists
from services.site.site_routes import page_route
from tests.support.site import serve_site

SLOW_REQUESTS = 16  # more than asyncio's own pool has threads on machines of up to eleven cores


class SlowPart:
    """Part with a page that waits in a thread, as for a Ray that takes minutes to deploy."""

    def __init__(self, _):
        self.all_wait = threading.Barrier(SLOW_REQUESTS + 1, timeout=60)

    def routes(self):
        return [page_route("/slow", self.wait)]

    async def wait(self, request):
        await asyncio.to_thread(self.all_wait.wait)
        return PlainTextResponse("done")

    def list_home_items(self):
        return HomeLists()


def test_a_page_is_answered_while_many_others_wait(tmp_path):
    parts = []

    def build_part(context):
        parts.append(SlowPart(context))
        return parts[0]

    with serve_site(tmp_path / "results", None, [build_part]) as site, ThreadPoolExecutor(SLOW_REQUESTS) as people:
        replies = [people.submit(site.page, "/slow") for _ in range(SLOW_REQUESTS)]
        assert site.page("/")[0] == 200  # its parts are asked in a thread, too
        parts[0].all_wait.wait()
        assert [reply.result() for reply in replies] == [(200, "done")] * SLOW_REQUESTS
