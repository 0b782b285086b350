"""Endpoints of the labelling page: pictures, the queue, labels and classes."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from equipoise.errors import EquipoiseError
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.pictures import add_picture
from equipoise.labels.store import LabelConflict
from equipoise.storage.json_decoding import decode_json_bytes
from equipoise.storage.path_errors import report_path_errors
from services.http.auth import reject_cross_site
from services.http.errors import RequestRejected
from services.http.request_body import BodyReader, extract_image
from services.http.responses import json_response
from services.labelling.message_types import ClassBody, NextBody, OpenBody, ReleaseBody, SaveBody
from services.labelling.session import LabelSession, describe_labels

STATUS_BY_CODE = {"path-missing": 404, "path-kind": 404, "label-conflict": 409, "disk-full": 507}
"""HTTP status of a refusal by its code; 400 for any other"""
BodyT = TypeVar("BodyT")
ReplyT = TypeVar("ReplyT")


class LabellingRoutes:
    """Handlers of the endpoints that the page uses; programs may use them too."""

    def __init__(self, session: LabelSession, body_reader: BodyReader) -> None:
        self.session, self.body_reader = session, body_reader

    def routes(self) -> list[Route]:
        """Return the route of each endpoint; a page that takes no pictures has none for them."""
        uploads = [Route("/upload", self.post_upload, methods=["POST"])] if self.session.takes_pictures else []
        return [
            Route("/queue", self.get_queue),
            Route("/picture", self.get_picture),
            Route("/labels", self.get_labels),
            Route("/next", self.post_next, methods=["POST"]),
            Route("/open", self.post_open, methods=["POST"]),
            Route("/renew", self.post_renew, methods=["POST"]),
            Route("/release", self.post_release, methods=["POST"]),
            Route("/save", self.post_save, methods=["POST"]),
            Route("/classes", self.post_class, methods=["POST"]),
            *uploads,
        ]

    async def get_queue(self, request: Request) -> Response:
        """Answer GET /queue: numbers, classes and names of the pictures, in the order of the queue."""
        numbers = await call_session(self.session.describe_queue, request.query_params.get("holder", ""))
        return json_response({**numbers, "pictures": await call_session(self.session.queue.list_names)})

    async def get_picture(self, request: Request) -> Response:
        """Answer GET /picture?name=NAME: the copy of a picture for the page."""
        copy = await call_session(self.session.queue.page_copy, request.query_params.get("name", ""))
        return Response(copy.content, media_type=copy.media_type, headers={"cache-control": "private, no-cache"})

    async def get_labels(self, request: Request) -> Response:
        """Answer GET /labels?name=NAME: the stored labels of a picture."""
        name = request.query_params.get("name", "")
        return json_response(describe_labels(await call_session(self.session.store.read_labels, name)))

    async def post_next(self, request: Request) -> Response:
        """Answer POST /next: lease the next picture that nobody has labelled, and return it."""
        body = await self._read_json(request, NextBody)
        return json_response(await call_session(self.session.open_next, body.holder, body.skip))

    async def post_open(self, request: Request) -> Response:
        """Answer POST /open: lease one picture, and return it with its labels."""
        body = await self._read_json(request, OpenBody)
        return json_response(await call_session(self.session.open_picture, body.picture, body.holder))

    async def post_renew(self, request: Request) -> Response:
        """Answer POST /renew: keep a picture for some more minutes."""
        body = await self._read_json(request, OpenBody)
        await call_session(self.session.queue.require_picture, body.picture)
        is_kept = await call_session(self.session.leases.take_picture, body.picture, body.holder)
        return json_response({"is_taken": not is_kept})

    async def post_release(self, request: Request) -> Response:
        """Answer POST /release: other people may have the picture of a page that is being closed."""
        body = await self._read_json(request, ReleaseBody)
        await call_session(self.session.leases.release_pictures, body.holder)
        return json_response({})

    async def post_save(self, request: Request) -> Response:
        """Answer POST /save: save labels; 409 with the stored ones if somebody else has changed them."""
        body = await self._read_json(request, SaveBody)
        try:
            saved = await asyncio.to_thread(name_failed_file, self._save_labels, body)
        except LabelConflict as conflict:
            return json_response({"error": str(conflict), "current": describe_labels(conflict.current)}, 409)
        except EquipoiseError as error:
            raise reject_error(error) from None
        return json_response(describe_labels(saved))

    def _save_labels(self, body: SaveBody) -> PictureLabels:
        given = {"boxes": body.boxes, "label": body.label, "author": body.author}
        labels = PictureLabels(picture=body.picture, width=body.width, height=body.height, **given)  # type: ignore[arg-type]
        return self.session.save_labels(labels, body.base_revision)

    async def post_class(self, request: Request) -> Response:
        """Answer POST /classes: add a class, and return all."""
        body = await self._read_json(request, ClassBody)
        classes = await call_session(self.session.store.add_classes, self.session.kind, [body.name.strip()])
        return json_response({"classes": classes})

    async def post_upload(self, request: Request) -> Response:
        """Answer POST /upload?name=NAME: add a picture from a file or a camera to the folder."""
        reject_cross_site(request)
        content = await extract_image(request, await self.body_reader.read_body(request))
        name = request.query_params.get("name", "")
        return json_response({"picture": await call_session(add_picture, self.session.images, content, name)})

    async def _read_json(self, request: Request, kind: type[BodyT]) -> BodyT:
        """Read the body of a request from this page as a `kind`."""
        reject_cross_site(request)
        body = await self.body_reader.read_body(request)
        try:
            return decode_json_bytes(body, kind, code="labels-invalid", problem="cannot read the request")
        except EquipoiseError as error:
            raise RequestRejected(400, str(error)) from None


async def call_session(function: Callable[..., ReplyT], *arguments: Any) -> ReplyT:
    """Call a function that reads or writes files in a thread; a mistake of the user becomes a rejection."""
    try:
        return await asyncio.to_thread(name_failed_file, function, *arguments)
    except EquipoiseError as error:
        raise reject_error(error) from None


def name_failed_file(function: Callable[..., ReplyT], *arguments: Any) -> ReplyT:
    """Call a function; that a file cannot be read or written, as on a full disk, is a mistake that people can mend."""
    try:
        return function(*arguments)
    except OSError as error:
        with report_path_errors(f"cannot read or write {error.filename or 'the labels'}"):
            raise


def reject_error(error: EquipoiseError) -> RequestRejected:
    """Return the rejection of a request that the session refuses."""
    return RequestRejected(STATUS_BY_CODE.get(error.code, 400), str(error), "labels")
