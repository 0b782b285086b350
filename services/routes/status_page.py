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

from equipoise.captures.store import CaptureStore
from equipoise.drift.diagnosis.stream_verdict import with_class_names
from equipoise.images.thumbnails import MAX_THUMBNAILS_PER_ROW, CaptionedPngs, make_thumbnail, reference_thumbnails
from services.http.errors import RequestRejected, drift_is_off
from services.http.responses import compress_response, json_response
from services.monitoring.drift_client import DriftClient
from services.monitoring.metrics_history import MetricsHistory
from services.routes.drift import await_monitor, stream_name, unknown_verdict
from services.serving.models import Model, ModelRegistry, model_status

PAGE_CACHE_SECONDS = 1.0  # for which one page serves all who look
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""a page holds all it needs: whatever got into it could reach nothing else"""


@dataclass(frozen=True, kw_only=True)
class ModelDrift:
    """What is known of the requests of one model."""

    model_name: str
    verdict: dict[str, Any]
    chart_history: dict[str, Any] | None = None
    events: tuple[dict[str, Any], ...] = ()
    drifted_images: tuple[tuple[bytes, str], ...] = ()
    reference_images: tuple[tuple[bytes, str], ...] = ()


class StatusPageRoutes:
    """The endpoints that people look at."""

    def __init__(
        self,
        model_registry: ModelRegistry,
        metrics_history: MetricsHistory,
        drift_client: DriftClient | None,
        capture_store: CaptureStore | None,
    ) -> None:
        self.model_registry = model_registry
        self.metrics_history = metrics_history
        self.drift_client = drift_client
        self.capture_store = capture_store
        self.page_lock = asyncio.Lock()
        self.cached_page: tuple[float, Any] = (-PAGE_CACHE_SECONDS, None)
        self.thumbnails_by_version: dict[str, CaptionedPngs] = {}
        """of each version"""

    def routes(self) -> list[tuple[str, str, Callable[[Request], Awaitable[Response]]]]:
        """Verb, path, answer."""
        return [("GET", "/", self.get_page), ("GET", "/live", self.get_live_update)]

    async def get_page(self, _: Request) -> Response:
        """The whole page."""
        from dashboards.page import render_html  # Plotly takes a while, and replicas that nobody looks at do without

        text = await asyncio.to_thread(render_html, await self._current_page())
        return HTMLResponse(
            text, headers={"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
        )

    async def get_live_update(self, request: Request) -> Response:
        """What a page that is open takes over."""
        from dashboards.page import build_live_update

        found = await self._current_page()
        facts = await asyncio.to_thread(build_live_update, found)
        return compress_response(json_response(facts), request)

    async def _current_page(self) -> Any:
        """The page as it is now; whoever looks at the same moment sees the same."""
        async with self.page_lock:
            at, found = self.cached_page
            if time.monotonic() - at >= PAGE_CACHE_SECONDS:
                drifting = [await self._fetch_drift(model) for model in [*self.model_registry.models.values()]]
                found = await asyncio.to_thread(self._build_page, drifting)
                self.cached_page = time.monotonic(), found
            return found

    def _build_page(self, model_drifts: list[ModelDrift]) -> Any:
        from dashboards.page import Page
        from dashboards.panels.drift import build_drift_sections, prefix_title
        from dashboards.panels.service import build_service_sections

        sections = build_service_sections(
            self.metrics_history.recent_snapshots(),
            [model_status(model) for model in self.model_registry.models.values()],
        )
        for one in model_drifts:
            more = build_drift_sections(
                one.verdict,
                one.chart_history,
                one.events,
                one.drifted_images,
                one.reference_images,
                f"{one.model_name}-",
            )
            sections += [prefix_title(one.model_name, section) for section in more]
        states = ", ".join(f"{one.model_name}: {one.verdict['state']}" for one in model_drifts)
        return Page(title="Equipoise: service", lead=f"Drift of {states}", sections=sections, live_url="live")

    async def _fetch_drift(self, model: Model) -> ModelDrift:
        """Of one model; where the monitor does not answer, that is what there is to say."""
        held = model.current.reference
        if self.drift_client is None:
            return ModelDrift(model_name=model.name, verdict=unknown_verdict(drift_is_off().message))
        if isinstance(held, str):
            return ModelDrift(model_name=model.name, verdict=unknown_verdict(held))
        name, classes = stream_name(model), model.current.bundle.classes
        try:
            verdict, trace, events = await asyncio.gather(
                await_monitor(self.drift_client.get_verdict(name)),
                await_monitor(self.drift_client.get_chart_history(name)),
                await_monitor(self.drift_client.get_events(name)),
            )
        except RequestRejected as error:
            return ModelDrift(model_name=model.name, verdict=unknown_verdict(error.message))
        moved, usual = await asyncio.to_thread(self._load_thumbnails, model, verdict["state"] == "drift")
        return ModelDrift(
            model_name=model.name,
            verdict=with_class_names(verdict, classes),
            chart_history=trace,
            events=tuple(with_class_names(one, classes) for one in events),
            drifted_images=tuple(moved),
            reference_images=tuple(usual),
        )

    def _load_thumbnails(self, model: Model, is_drifting: bool) -> tuple[CaptionedPngs, CaptionedPngs]:
        """Requests that were kept, if there is a drift to be seen on them, and some of the reference."""
        moved: CaptionedPngs = []
        if is_drifting and self.capture_store:
            try:
                kept = [
                    one
                    for one in self.capture_store.list_captures("drift", 4 * MAX_THUMBNAILS_PER_ROW)
                    if one["model"] == model.name
                ]
                moved = [
                    (make_thumbnail(self.capture_store.read_png(one["id"])), format_caption(one))
                    for one in kept[:MAX_THUMBNAILS_PER_ROW]
                ]
            except (OSError, ValueError):  # what is not there is not shown; GET /capture says why
                moved = []
        version = model.current
        if version.id not in self.thumbnails_by_version:
            self.thumbnails_by_version = {
                version.id: reference_thumbnails(version.bundle.load_reference_arrays(), version.bundle.classes)
            }
        return moved, self.thumbnails_by_version[version.id]


def format_caption(capture: dict[str, Any]) -> str:
    """What the model said of a request, and how sure it was."""
    return f"{capture['label']} {max(capture['scores'].values(), default=0.0):.0%}"
