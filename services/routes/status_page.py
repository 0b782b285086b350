"""The page of a service: how it does and whether its requests drift, made anew for whoever looks.

It is made of the panels that files have, and only while somebody looks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from equipoise.captures.store import Captures
from equipoise.drift.diagnosis.stream_verdict import named
from equipoise.images.thumbnails import MOST, Shown, thumbnail, usual
from services.http import errors
from services.http.errors import Refused
from services.http.responses import answer, compressed
from services.monitoring.drift_client import Link
from services.monitoring.metrics_history import Noted
from services.routes.drift import said, stream, unknown
from services.serving.models import Model, Models, described

SECONDS = 1.0  # for which one page serves all who look
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""a page holds all it needs: whatever got into it could reach nothing else"""


@dataclass(frozen=True, kw_only=True)
class Drifting:
    """What is known of the requests of one model."""

    model: str
    verdict: dict[str, Any]
    trace: dict[str, Any] | None = None
    events: tuple[dict[str, Any], ...] = ()
    moved: tuple[tuple[bytes, str], ...] = ()
    usual: tuple[tuple[bytes, str], ...] = ()


class Live:
    """The endpoints that people look at."""

    def __init__(self, models: Models, noted: Noted, link: Link | None, captures: Captures | None) -> None:
        self.models = models
        self.noted = noted
        self.link = link
        self.captures = captures
        self.lock = asyncio.Lock()
        self.made: tuple[float, Any] = (-SECONDS, None)
        self.references: dict[str, Shown] = {}
        """of each version"""

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [("GET", "/", self.page), ("GET", "/live", self.changes)]

    async def page(self, _: Request) -> Response:
        """The whole page."""
        from dashboards import page  # Plotly takes a while, and replicas that nobody looks at do without

        text = await asyncio.to_thread(page.html, await self._page())
        return HTMLResponse(text, headers={"content-security-policy": POLICY, "cache-control": "no-store"})

    async def changes(self, request: Request) -> Response:
        """What a page that is open takes over."""
        from dashboards import page

        found = await self._page()
        facts = await asyncio.to_thread(page.changes, found)
        return compressed(answer(facts), request)

    async def _page(self) -> Any:
        """The page as it is now; whoever looks at the same moment sees the same."""
        async with self.lock:
            at, found = self.made
            if time.monotonic() - at >= SECONDS:
                drifting = [await self._drifting(model) for model in [*self.models.held.values()]]
                found = await asyncio.to_thread(self._put_together, drifting)
                self.made = time.monotonic(), found
            return found

    def _put_together(self, drifting: list[Drifting]) -> Any:
        from dashboards.page import Page
        from dashboards.panels import drift, service

        sections = service.sections(self.noted.lately(), [described(model) for model in self.models.held.values()])
        for one in drifting:
            more = drift.sections(one.verdict, one.trace, one.events, one.moved, one.usual, f"{one.model}-")
            sections += [drift.headed(one.model, section) for section in more]
        states = ", ".join(f"{one.model}: {one.verdict['state']}" for one in drifting)
        return Page(title="Equipoise: service", lead=f"Drift of {states}", sections=sections, live="live")

    async def _drifting(self, model: Model) -> Drifting:
        """Of one model; where the monitor does not answer, that is what there is to say."""
        held = model.current.reference
        if self.link is None:
            return Drifting(model=model.name, verdict=unknown(errors.drift_is_off().sentence))
        if isinstance(held, str):
            return Drifting(model=model.name, verdict=unknown(held))
        name, classes = stream(model), model.current.bundle.classes
        try:
            verdict, trace, events = await asyncio.gather(
                said(self.link.verdict(name)), said(self.link.trace(name)), said(self.link.history(name))
            )
        except Refused as error:
            return Drifting(model=model.name, verdict=unknown(error.sentence))
        moved, usual = await asyncio.to_thread(self._pictures, model, verdict["state"] == "drift")
        return Drifting(
            model=model.name,
            verdict=named(verdict, classes),
            trace=trace,
            events=tuple(named(one, classes) for one in events),
            moved=tuple(moved),
            usual=tuple(usual),
        )

    def _pictures(self, model: Model, drifts: bool) -> tuple[Shown, Shown]:
        """Requests that were kept, if there is a drift to be seen on them, and some of the reference."""
        moved: Shown = []
        if drifts and self.captures:
            try:
                kept = [one for one in self.captures.listed("drift", 4 * MOST) if one["model"] == model.name]
                moved = [(thumbnail(self.captures.picture(one["id"])), called(one)) for one in kept[:MOST]]
            except (OSError, ValueError):  # what is not there is not shown; GET /capture says why
                moved = []
        version = model.current
        if version.id not in self.references:
            self.references = {version.id: usual(version.bundle.reference(), version.bundle.classes)}
        return moved, self.references[version.id]


def called(one: dict[str, Any]) -> str:
    """What the model said of a request, and how sure it was."""
    return f"{one['label']} {max(one['scores'].values(), default=0.0):.0%}"
