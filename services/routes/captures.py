"""Requests that were kept, and labels for them, over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.captures.store import CaptureNotFound, CaptureStore
from services.http.auth import reject_cross_site
from services.http.errors import RequestRejected, capture_is_unknown, captures_are_away, captures_are_off
from services.http.request_body import BodyReader
from services.http.responses import json_response
from services.serving.models import ModelRegistry

MAX_LISTED_CAPTURES = 1000


class CaptureRoutes:
    """The endpoints about captures."""

    def __init__(
        self, model_registry: ModelRegistry, body_reader: BodyReader, capture_store: CaptureStore | None
    ) -> None:
        self.model_registry = model_registry
        self.body_reader = body_reader
        self.capture_store = capture_store

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [
            ("GET", "/capture", self.list_captures),
            ("POST", "/capture/labels", self.label_from_csv),
            ("GET", "/capture/{id}", self.get_image),
            ("POST", "/capture/{id}/label", self.label_capture),
        ]

    async def list_captures(self, request: Request) -> Response:
        """What was kept, the most useful to label first."""
        held = self._require_store()
        pool, limit = request.query_params.get("pool"), request.query_params.get("limit", "100")
        few = (
            limit.isascii()
            and limit.isdigit()
            and len(limit) <= len(str(MAX_LISTED_CAPTURES))
            and int(limit) <= MAX_LISTED_CAPTURES
        )
        if pool not in (None, *CAPTURE_POOLS) or not few:
            raise RequestRejected(
                400, f"ask for a pool of {', '.join(CAPTURE_POOLS)}, and for {MAX_LISTED_CAPTURES} at most"
            )
        found = await call_capture_store(held.list_captures, pool, int(limit))
        return json_response({"captures": found, "trouble": held.last_error})

    async def get_image(self, request: Request) -> Response:
        """One picture, as the model took it."""
        data = await call_capture_store(self._require_store().read_png, request.path_params["id"])
        return Response(data, media_type="image/png")

    async def label_capture(self, request: Request) -> Response:
        """What a picture really shows."""
        reject_cross_site(request)
        held, body = self._require_store(), await self.body_reader.read_body(request)
        try:
            name = json.loads(body)["label"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name = None
        if not isinstance(name, str):
            raise RequestRejected(400, 'send {"label": NAME} as JSON')
        return json_response(
            await call_capture_store(held.label_capture, request.path_params["id"], name, self._known_classes())
        )

    async def label_from_csv(self, request: Request) -> Response:
        """Many at once: a table with the columns id and label."""
        reject_cross_site(request)
        held, body = self._require_store(), await self.body_reader.read_body(request)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise RequestRejected(400, "send a CSV with the columns id and label, in UTF-8") from None
        return json_response({"labelled": await call_capture_store(held.label_from_csv, text, self._known_classes())})

    def _require_store(self) -> CaptureStore:
        if self.capture_store is None:
            raise captures_are_off()
        return self.capture_store

    def _known_classes(self) -> list[str]:
        """Of all models."""
        held = self.model_registry.models.values()
        return [*dict.fromkeys(name for model in held for name in model.current.bundle.classes)]


async def call_capture_store(method: Callable[..., Any], *args: Any) -> Any:
    """What the captures say, apart from those who wait for answers."""
    try:
        return await asyncio.to_thread(method, *args)
    except CaptureNotFound as error:
        raise capture_is_unknown(error) from None
    except ValueError as error:
        raise RequestRejected(400, str(error), "capture") from None
    except OSError as error:
        raise captures_are_away(error) from error
