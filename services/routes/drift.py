"""Endpoints for drift: verdict, events, chart history and reset, by the drift monitor."""

import logging
from collections.abc import Awaitable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import ReferenceUnavailable
from services.http.auth import reject_cross_site
from services.http.errors import drift_is_off, monitor_is_away
from services.http.message_types import ChartHistoryReply, EventsReply, ResetReply
from services.http.responses import json_response, typed_response
from services.monitoring.drift_client import DriftClient
from services.serving.models import Model, ModelRegistry

logger = logging.getLogger(__name__)


class DriftRoutes:
    """Handlers of the endpoints under /drift."""

    def __init__(self, model_registry: ModelRegistry, drift_client: DriftClient | None) -> None:
        self.model_registry = model_registry
        self.drift_client = drift_client

    def routes(self) -> list[Route]:
        """Return the route of each endpoint."""
        return [
            Route("/drift", self.get_verdict),
            Route("/drift/history", self.get_events),
            Route("/drift/charts", self.get_chart_history),
            Route("/drift/reset", self.reset_charts, methods=["POST"]),
        ]

    async def get_verdict(self, request: Request) -> Response:
        """Answer GET /drift: whether requests still look like the reference of the model's bundle."""
        model, client = self._find_model_and_client(request)
        reference = model.current.reference
        if isinstance(reference, ReferenceUnavailable):
            verdict = StreamVerdict(state="unknown", why=reference.reason)
        else:
            verdict = await await_monitor(client.get_verdict(current_stream(model)))
        verdict = msgspec.structs.replace(verdict, model=model.name, version=model.current.id)
        return json_response(add_model_kind(verdict, model).to_json())

    async def get_events(self, request: Request) -> Response:
        """Answer GET /drift/history: alarms, restarts and resets, the latest last."""
        model, client = self._find_model_and_client(request)
        events = [event.to_json() for event in await await_monitor(client.get_events(current_stream(model)))]
        return typed_response(EventsReply(model=model.name, version=model.current.id, events=events))

    async def get_chart_history(self, request: Request) -> Response:
        """Answer GET /drift/charts: the values of each chart after each report."""
        model, client = self._find_model_and_client(request)
        history = await await_monitor(client.get_chart_history(current_stream(model)))
        charts = msgspec.structs.asdict(history)
        return typed_response(ChartHistoryReply(model=model.name, version=model.current.id, **charts))

    async def reset_charts(self, request: Request) -> Response:
        """Answer POST /drift/reset: restart the charts, once a change is known or fixed."""
        reject_cross_site(request)
        model, client = self._find_model_and_client(request)
        await await_monitor(client.reset_charts(current_stream(model)))
        return typed_response(ResetReply(model=model.name, version=model.current.id, reset=True))

    def _find_model_and_client(self, request: Request) -> tuple[Model, DriftClient]:
        """Return the model that the request is about, and the client of the drift monitor."""
        if self.drift_client is None:
            raise drift_is_off()
        return self.model_registry.find_model(request.query_params.get("model")), self.drift_client


async def await_monitor(reply: Awaitable[Any]) -> Any:
    """Await a reply of the drift monitor; reject the request with a 503 if there is none."""
    try:
        return await reply
    except Exception as error:  # whatever Ray raises for an actor that is gone
        logger.warning("the drift monitor does not answer", exc_info=error)
        raise monitor_is_away() from None


def current_stream(model: Model) -> StreamKey:
    """Return the key of the drift stream of a model's current version."""
    return StreamKey(model.name, model.current.id)


def request_source(request: Request) -> str | None:
    """Return where the client says that its images come from (a camera, a shop), or None."""
    source = request.headers.get("x-source", "")
    return source if 0 < len(source) <= 64 and source.isprintable() else None


def add_model_kind(verdict: StreamVerdict, model: Model) -> StreamVerdict:
    """Return the verdict with the kind of data of its model, which a monitor without its profile does not know."""
    bundle = model.current.bundle
    has_accuracy = bool(bundle.classes) and bundle.kind != "boxes"  # a detector's classes are those of boxes
    return msgspec.structs.replace(verdict, kind=bundle.kind, has_accuracy=has_accuracy)
