"""Pages of labels: all queues, and the labelling page of each with its endpoints, for people and for programs."""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_value
from services.http.request_body import BodyReader
from services.labelling.application import LABELLING_LIMITS, answer_asset, render_label_page
from services.labelling.routes import LabellingRoutes
from services.site.labels.label_queues import LabelQueues, QueueBody
from services.site.rendering import PageRenderer
from services.site.roles import Role
from services.site.site_routes import SiteRoute, action_route, page_route

Handler = Callable[[LabellingRoutes, Request], Awaitable[Response]]


async def post_upload(routes: LabellingRoutes, request: Request) -> Response:
    """Answer POST /upload: add a picture to a folder; refuse it for captures, which only the service adds to."""
    if not routes.session.takes_pictures:
        problem = "cannot add a picture to the captures of a service: it keeps the requests that it answers"
        raise EquipoiseError("option-conflict", problem, "add a folder of pictures as a label queue")
    return await routes.post_upload(request)


READING: dict[str, Handler] = {
    "queue": LabellingRoutes.get_queue,
    "picture": LabellingRoutes.get_picture,
    "labels": LabellingRoutes.get_labels,
}
"""endpoints of the labelling page that only read"""
WRITING: dict[str, Handler] = {
    "next": LabellingRoutes.post_next,
    "open": LabellingRoutes.post_open,
    "renew": LabellingRoutes.post_renew,
    "release": LabellingRoutes.post_release,
    "save": LabellingRoutes.post_save,
    "classes": LabellingRoutes.post_class,
    "upload": post_upload,
}
"""endpoints that lend pictures to people and save labels"""


class LabelPages:
    """Handlers of the pages; each queue's page is that of `equipoise label`, with the roles of the site."""

    def __init__(self, queues: LabelQueues, renderer: PageRenderer) -> None:
        self.queues, self.renderer = queues, renderer
        self.body_reader = BodyReader(LABELLING_LIMITS)

    def routes(self) -> list[SiteRoute]:
        """Return the routes of the pages and of what the labelling page asks for."""
        size = LABELLING_LIMITS.body_bytes
        return [
            page_route("/labels", self.get_queues),
            action_route("/labels", self.post_queue, Role.RUN),
            action_route("/labels/{name}/remove", self.post_remove, Role.RUN),
            page_route("/labels/{name}", self.get_page_folder, Role.LABEL),
            page_route("/labels/{name}/", self.get_page, Role.LABEL),
            page_route("/labels/{name}/assets/{file}", self.get_asset, Role.LABEL),
            *(page_route(f"/labels/{{name}}/{path}", self.bind(call), Role.LABEL) for path, call in READING.items()),
            *(
                action_route(f"/labels/{{name}}/{path}", self.bind(call), Role.LABEL, size)
                for path, call in WRITING.items()
            ),
        ]

    def bind(self, call: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that calls an endpoint of the labelling page with the session that the path names."""

        async def handle(request: Request) -> Response:
            session = await asyncio.to_thread(self.queues.open_session, request.path_params["name"])
            return await call(LabellingRoutes(session, self.body_reader), request)

        return handle

    async def get_queues(self, request: Request) -> Response:
        """Answer GET /labels: all queues, and a form to add one."""
        queues = await asyncio.to_thread(self.queues.list_queues)
        return self.renderer.render_page(request, "labels.html", queues=queues)

    async def post_queue(self, request: Request) -> Response:
        """Answer POST /labels: label the pictures of a folder."""
        form = await request.form()
        contents = {name: str(form.get(name, "")).strip() for name in ("name", "images", "kind")}
        body = decode_json_value(
            {**contents, "classes": [str(form.get("classes", ""))]},
            QueueBody,
            code="option-choice",
            problem="cannot add this label queue",
        )
        queue = await asyncio.to_thread(self.queues.add_folder, body)
        return RedirectResponse(f"/labels/{quote(queue.name)}/", 303)

    async def post_remove(self, request: Request) -> Response:
        """Answer POST /labels/NAME/remove: forget a queue of a folder, whose pictures and labels stay."""
        await asyncio.to_thread(self.queues.remove_folder, request.path_params["name"])
        return RedirectResponse("/labels", 303)

    async def get_page_folder(self, request: Request) -> Response:
        """Answer GET /labels/NAME: lead to the page, whose own addresses are relative to its folder."""
        return RedirectResponse(f"/labels/{quote(request.path_params['name'])}/", 303)

    async def get_page(self, request: Request) -> Response:
        """Answer GET /labels/NAME/: the labelling page."""
        session = await asyncio.to_thread(self.queues.open_session, request.path_params["name"])
        return render_label_page(session, csrf_token=request.state.viewer.csrf_token, home="/labels")

    async def get_asset(self, request: Request) -> Response:
        """Answer GET /labels/NAME/assets/FILE: a style sheet or a script of the labelling page."""
        return answer_asset(request.path_params["file"])
