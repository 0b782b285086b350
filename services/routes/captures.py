"""Endpoints for captures: list the requests that were kept, show them, and label them."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from equipoise.bundle.manifest import DATA_NAMES
from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.captures.capture_id import CaptureNotFound
from equipoise.captures.store import CaptureStore
from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from equipoise.drift.reference.profile import ReferenceUnavailable
from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_bytes
from services.http.auth import reject_cross_site
from services.http.errors import RequestRejected, capture_is_unknown, captures_are_away, captures_are_off
from services.http.message_types import CaptureListReply, LabelBody, LabelCountReply
from services.http.request_body import BodyReader
from services.http.responses import json_response
from services.limits import DEFAULT_LISTED_CAPTURES, MAX_LISTED_CAPTURES
from services.serving.model_versions import LoadedVersion
from services.serving.models import ModelRegistry


class CaptureRoutes:
    """Handlers of the endpoints under /capture."""

    def __init__(
        self, model_registry: ModelRegistry, body_reader: BodyReader, capture_store: CaptureStore | None
    ) -> None:
        self.model_registry = model_registry
        self.body_reader = body_reader
        self.capture_store = capture_store

    def routes(self) -> list[Route]:
        """Return the route of each endpoint."""
        return [
            Route("/capture", self.list_captures),
            Route("/capture/labels", self.label_from_csv, methods=["POST"]),
            Route("/capture/{id}", self.get_image),
            Route("/capture/{id}/label", self.label_capture, methods=["POST"]),
        ]

    async def list_captures(self, request: Request) -> Response:
        """Answer GET /capture: the requests that were kept, the most useful to label first."""
        store = self._require_store()
        pool, limit = request.query_params.get("pool"), request.query_params.get("limit", str(DEFAULT_LISTED_CAPTURES))
        is_limit_valid = (
            limit.isascii()
            and limit.isdigit()
            and len(limit) <= len(str(MAX_LISTED_CAPTURES))
            and int(limit) <= MAX_LISTED_CAPTURES
        )
        if pool not in (None, *CAPTURE_POOLS) or not is_limit_valid:
            raise RequestRejected(
                400,
                f"cannot list captures: pool must be one of {', '.join(CAPTURE_POOLS)} and limit"
                f" a number up to {MAX_LISTED_CAPTURES}",
            )
        captures = await call_capture_store(store.list_captures, pool, int(limit))
        trouble = store.last_error or explain_nothing_kept(self.model_registry)
        return json_response(msgspec.to_builtins(CaptureListReply(captures=captures, trouble=trouble)))

    async def get_image(self, request: Request) -> Response:
        """Answer GET /capture/ID: the image as PNG, as the model took it; to a detector, the photograph."""
        data = await call_capture_store(self._require_store().read_png, request.path_params["id"])
        return Response(data, media_type="image/png")

    async def label_capture(self, request: Request) -> Response:
        """Answer POST /capture/ID/label: set the true label of one capture."""
        reject_cross_site(request)
        store, body = self._require_store(), await self.body_reader.read_body(request)
        try:
            label = decode_json_bytes(body, LabelBody, code="labels-invalid", problem="cannot read the label").label
        except EquipoiseError:
            raise RequestRejected(400, 'cannot read the label: send {"label": NAME} as JSON') from None
        capture_id, classes = request.path_params["id"], self._known_classes()
        return json_response((await call_capture_store(store.label_capture, capture_id, label, classes)).to_json())

    async def label_from_csv(self, request: Request) -> Response:
        """Answer POST /capture/labels: set many labels from a CSV with the columns id and label."""
        reject_cross_site(request)
        store, body = self._require_store(), await self.body_reader.read_body(request)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise RequestRejected(
                400, "cannot read the labels: send a CSV in UTF-8 with the columns id and label"
            ) from None
        count = await call_capture_store(store.label_from_csv, text, self._known_classes())
        return json_response(vars(LabelCountReply(labelled=count)))

    def _require_store(self) -> CaptureStore:
        if self.capture_store is None:
            raise captures_are_off()
        return self.capture_store

    def _known_classes(self) -> list[str]:
        """Return the class names of all models, each once."""
        models = self.model_registry.models.values()
        return [*dict.fromkeys(name for model in models for name in model.current.bundle.classes)]


def explain_nothing_kept(model_registry: ModelRegistry) -> str | None:
    """Return why requests to no model are kept; None if those to one of them are."""
    versions = {name: model.versions_by_role()["current"] for name, model in model_registry.models.items()}
    reasons = {name: explain_version_not_kept(version) for name, version in versions.items()}
    if not reasons or not all(reasons.values()):
        return None
    found = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return f"only images are kept, and only where drift can be detected; {found}"


def explain_version_not_kept(version: LoadedVersion) -> str | None:
    """Return why requests to a version are not kept; None if they are."""
    if version.bundle.kind not in KINDS_OF_IMAGES:
        return f"it is a model of {DATA_NAMES[version.bundle.kind]}"
    return version.reference.reason if isinstance(version.reference, ReferenceUnavailable) else None


async def call_capture_store(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of the capture store in a thread, and turn its errors into rejections."""
    try:
        return await asyncio.to_thread(method, *args)
    except CaptureNotFound as error:
        raise capture_is_unknown(error) from None
    except EquipoiseError as error:
        raise RequestRejected(400, str(error), "capture") from None
    except OSError as error:
        raise captures_are_away(error) from error
