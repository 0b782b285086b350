"""What is known of requests beyond their answers: whether they drift, by the monitor."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.drift.diagnosis.stream_verdict import with_class_names
from services.http.auth import reject_cross_site
from services.http.errors import drift_is_off, monitor_is_away
from services.http.responses import json_response
from services.monitoring.drift_client import DriftClient
from services.serving.models import Model, ModelRegistry

logger = logging.getLogger("equipoise.service")


class DriftRoutes:
    """The endpoints about drift."""

    def __init__(self, model_registry: ModelRegistry, drift_client: DriftClient | None) -> None:
        self.model_registry = model_registry
        self.drift_client = drift_client

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [
            ("GET", "/drift", self.get_verdict),
            ("GET", "/drift/history", self.get_events),
            ("GET", "/drift/charts", self.get_chart_history),
            ("POST", "/drift/reset", self.reset_charts),
        ]

    async def get_verdict(self, request: Request) -> Response:
        """Whether requests look as the model's pictures did when it was published."""
        model, link = self._find_model_and_client(request)
        held = model.current.reference
        found = (
            unknown_verdict(held)
            if isinstance(held, str)
            else await await_monitor(link.get_verdict(stream_name(model)))
        )
        return json_response(
            {"model": model.name, "version": model.current.id} | with_class_names(found, model.current.bundle.classes)
        )

    async def get_events(self, request: Request) -> Response:
        """What happened to the charts, the latest last."""
        model, link = self._find_model_and_client(request)
        events = [
            with_class_names(one, model.current.bundle.classes)
            for one in await await_monitor(link.get_events(stream_name(model)))
        ]
        return json_response({"model": model.name, "version": model.current.id, "events": events})

    async def get_chart_history(self, request: Request) -> Response:
        """How high each chart was, step by step."""
        model, link = self._find_model_and_client(request)
        found = await await_monitor(link.get_chart_history(stream_name(model)))
        return json_response({"model": model.name, "version": model.current.id} | found)

    async def reset_charts(self, request: Request) -> Response:
        """Charts begin anew: what changed is known, or was put right."""
        reject_cross_site(request)
        model, link = self._find_model_and_client(request)
        await await_monitor(link.reset_charts(stream_name(model)))
        return json_response({"model": model.name, "version": model.current.id, "reset": True})

    def _find_model_and_client(self, request: Request) -> tuple[Model, DriftClient]:
        """The model that is asked about, and who knows."""
        if self.drift_client is None:
            raise drift_is_off()
        return self.model_registry.find_model(request.query_params.get("model")), self.drift_client


async def await_monitor(reply: Awaitable[Any]) -> Any:
    """What the monitor says."""
    try:
        return await reply
    except Exception as error:  # whatever Ray raises of an actor that is not there
        logger.warning("the monitor does not answer", exc_info=error)
        raise monitor_is_away() from None


def unknown_verdict(reason: str) -> dict[str, Any]:
    """The verdict where there is nothing to hold requests against."""
    return {"state": "unknown", "why": reason, "images": 0, "cause": None, "charts": []}


def stream_name(model: Model) -> str:
    """What the monitor calls the requests of the version that answers."""
    return f"{model.name}/{model.current.id}"


def request_source(request: Request) -> str | None:
    """Where the client says that its pictures come from: a camera, a shop."""
    found = request.headers.get("x-source", "")
    return found if 0 < len(found) <= 64 and found.isprintable() else None
