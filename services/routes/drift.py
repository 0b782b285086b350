"""What is known of requests beyond their answers: whether they drift, by the monitor."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from equipoise.drift.diagnosis.stream_verdict import named
from services.http import errors
from services.http.auth import require_own_site
from services.http.responses import answer
from services.monitoring.drift_client import Link
from services.serving.models import Model, Models

log = logging.getLogger("equipoise.service")


class Watched:
    """The endpoints about drift."""

    def __init__(self, models: Models, link: Link | None) -> None:
        self.models = models
        self.link = link

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [
            ("GET", "/drift", self.verdict),
            ("GET", "/drift/history", self.history),
            ("GET", "/drift/charts", self.charts),
            ("POST", "/drift/reset", self.reset),
        ]

    async def verdict(self, request: Request) -> Response:
        """Whether requests look as the model's pictures did when it was published."""
        model, link = self._asked(request)
        held = model.current.reference
        found = unknown(held) if isinstance(held, str) else await said(link.verdict(stream(model)))
        return answer({"model": model.name, "version": model.current.id} | named(found, model.current.bundle.classes))

    async def history(self, request: Request) -> Response:
        """What happened to the charts, the latest last."""
        model, link = self._asked(request)
        events = [named(one, model.current.bundle.classes) for one in await said(link.history(stream(model)))]
        return answer({"model": model.name, "version": model.current.id, "events": events})

    async def charts(self, request: Request) -> Response:
        """How high each chart was, step by step."""
        model, link = self._asked(request)
        found = await said(link.trace(stream(model)))
        return answer({"model": model.name, "version": model.current.id} | found)

    async def reset(self, request: Request) -> Response:
        """Charts begin anew: what changed is known, or was put right."""
        require_own_site(request)
        model, link = self._asked(request)
        await said(link.reset(stream(model)))
        return answer({"model": model.name, "version": model.current.id, "reset": True})

    def _asked(self, request: Request) -> tuple[Model, Link]:
        """The model that is asked about, and who knows."""
        if self.link is None:
            raise errors.drift_is_off()
        return self.models.named(request.query_params.get("model")), self.link


async def said(answers: Awaitable[Any]) -> Any:
    """What the monitor says."""
    try:
        return await answers
    except Exception as error:  # whatever Ray raises of an actor that is not there
        log.warning("the monitor does not answer", exc_info=error)
        raise errors.monitor_is_away() from None


def unknown(why: str) -> dict[str, Any]:
    """The verdict where there is nothing to hold requests against."""
    return {"state": "unknown", "why": why, "images": 0, "cause": None, "charts": []}


def stream(model: Model) -> str:
    """What the monitor calls the requests of the version that answers."""
    return f"{model.name}/{model.current.id}"


def source(request: Request) -> str | None:
    """Where the client says that its pictures come from: a camera, a shop."""
    found = request.headers.get("x-source", "")
    return found if 0 < len(found) <= 64 and found.isprintable() else None
