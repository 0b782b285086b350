"""Endpoints of labels below /api: queues, and for each the endpoints that its page uses."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.storage.json_decoding import decode_json_bytes
from equipoise.type_aliases import JsonObject
from services.http.responses import typed_response
from services.labelling.message_types import ClassBody, NextBody, OpenBody, ReleaseBody, SaveBody
from services.site.labels.label_pages import READING, WRITING, LabelPages
from services.site.labels.label_queues import LabelQueues, QueueBody, QueueReply, QueuesReply
from services.site.roles import Role
from services.site.site_routes import ApiDescription, SiteRoute, api_route

READING_SUMMARIES = {
    "queue": "Return numbers, classes and names of the pictures of a queue",
    "labels": "Return the stored labels of a picture",
}
WRITING_BODIES: Mapping[str, tuple[str, Any]] = {
    "next": ("Lend the next picture that nobody has labelled", NextBody),
    "open": ("Lend one picture", OpenBody),
    "renew": ("Keep a picture for some more minutes", OpenBody),
    "release": ("Hand the pictures of a holder to other people", ReleaseBody),
    "save": ("Save the labels of a picture", SaveBody),
    "classes": ("Add a class", ClassBody),
}


class LabelApi:
    """Handlers of the endpoints of labels below /api."""

    def __init__(self, queues: LabelQueues, pages: LabelPages) -> None:
        self.queues, self.pages = queues, pages

    def routes(self) -> list[SiteRoute]:
        """Return the route of each endpoint with its description."""
        return [
            describe_labels_route(
                "GET /api/labels", self.list_queues, "List the label queues", QueuesReply, role=Role.VIEW
            ),
            describe_labels_route("POST /api/labels", self.post_queue, "Add a queue", QueueReply, QueueBody, Role.RUN),
            *(
                describe_labels_route(
                    f"GET /api/labels/{{name}}/{path}", self.pages.bind(READING[path]), summary, JsonObject
                )
                for path, summary in READING_SUMMARIES.items()
            ),
            *(
                describe_labels_route(
                    f"POST /api/labels/{{name}}/{path}", self.pages.bind(WRITING[path]), summary, JsonObject, body
                )
                for path, (summary, body) in WRITING_BODIES.items()
            ),
        ]

    async def list_queues(self, _: Request) -> Response:
        """Answer GET /api/labels: all queues."""
        return typed_response(QueuesReply(queues=await asyncio.to_thread(self.queues.list_queues)))

    async def post_queue(self, request: Request) -> Response:
        """Answer POST /api/labels: add a queue."""
        body = decode_json_bytes(
            await request.body(), QueueBody, code="option-format", problem="cannot read the request"
        )
        return typed_response(await asyncio.to_thread(self.queues.add_folder, body))


def describe_labels_route(
    endpoint: str, handler: Any, summary: str, reply: Any, body: Any = None, role: Role = Role.LABEL
) -> SiteRoute:
    """Return the route of an endpoint with its description."""
    description = ApiDescription(summary=summary, returns=summary, reply=reply, body=body, rejections=(400, 404, 409))
    return api_route(endpoint, handler, role, description)
