"""Status page of a service: its requests and their drift, built on demand from the panels of `dashboards`.

The page is built only when somebody asks for it.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.captures.capture import CaptureMetadata
from equipoise.captures.store import CaptureStore
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.features.statistic_schema import KINDS_OF_IMAGES
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.drift.reference.profile import ReferenceUnavailable
from equipoise.errors import EquipoiseError
from equipoise.images.thumbnails import (
    MAX_THUMBNAILS_PER_ROW,
    CaptionedPngs,
    boxed_thumbnails,
    make_thumbnail,
    reference_thumbnails,
)
from services.http.errors import RequestRejected, drift_is_off
from services.http.responses import compress_response, json_response
from services.monitoring.drift_client import DriftClient
from services.monitoring.metrics_history import MetricsHistory
from services.routes.drift import add_model_kind, await_monitor, current_stream
from services.serving.models import Model, ModelRegistry, model_status

PAGE_CACHE_SECONDS = 1.0  # for so long, one page is served to all viewers
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""the page contains all it needs, so an injected script could reach nothing else"""


@dataclass(frozen=True, kw_only=True)
class ModelDrift:
    """Drift of the requests of one model: verdict, chart history, events and sample images."""

    model_name: str
    verdict: StreamVerdict
    chart_history: ChartHistory | None = None
    events: tuple[DriftEvent, ...] = ()
    drifted_images: tuple[tuple[bytes, str], ...] = ()
    reference_images: tuple[tuple[bytes, str], ...] = ()


class StatusPageRoutes:
    """Handlers of the status page and its updates."""

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
        """reference thumbnails by version id"""

    def routes(self) -> list[Route]:
        """Return the route of each endpoint."""
        return [Route("/", self.get_page), Route("/live", self.get_live_update)]

    async def get_page(self, _: Request) -> Response:
        """Answer GET /: the status page as HTML."""
        from dashboards.page import render_html  # Plotly is slow to import, and not every replica is looked at

        text = await asyncio.to_thread(render_html, await self._current_page())
        return HTMLResponse(
            text, headers={"content-security-policy": CONTENT_SECURITY_POLICY, "cache-control": "no-store"}
        )

    async def get_live_update(self, request: Request) -> Response:
        """Answer GET /live: what an open status page updates itself with."""
        from dashboards.page import build_live_update

        page = await self._current_page()
        update = await asyncio.to_thread(build_live_update, page)
        return compress_response(json_response(update), request)

    async def _current_page(self) -> Any:
        """Return the current page; all requests within `PAGE_CACHE_SECONDS` share one."""
        async with self.page_lock:
            built_at, page = self.cached_page
            if time.monotonic() - built_at >= PAGE_CACHE_SECONDS:
                model_drifts = [await self._fetch_drift(model) for model in [*self.model_registry.models.values()]]
                page = await asyncio.to_thread(self._build_page, model_drifts)
                self.cached_page = time.monotonic(), page
            return page

    def _build_page(self, model_drifts: list[ModelDrift]) -> Any:
        from dashboards.page import Page
        from dashboards.panels.drift import build_drift_sections, prefix_title
        from dashboards.panels.service import build_service_sections

        sections = build_service_sections(
            self.metrics_history.recent_snapshots(),
            [model_status(model) for model in self.model_registry.models.values()],
        )
        for drift in model_drifts:
            drift_sections = build_drift_sections(
                drift.verdict,
                drift.chart_history,
                drift.events,
                drift.drifted_images,
                drift.reference_images,
                f"{drift.model_name}-",
            )
            sections += [prefix_title(drift.model_name, section) for section in drift_sections]
        states = ", ".join(f"{drift.model_name} ({drift.verdict.state})" for drift in model_drifts)
        return Page(title="Equipoise: service", lead=f"Drift by model: {states}", sections=sections, live_url="live")

    async def _fetch_drift(self, model: Model) -> ModelDrift:
        """Return the drift of one model; its verdict is `unknown` where the monitor cannot give one."""
        reference = model.current.reference
        if self.drift_client is None:
            return unknown_drift(model, drift_is_off().message)
        if isinstance(reference, ReferenceUnavailable):
            return unknown_drift(model, reference.reason)
        stream = current_stream(model)
        try:
            verdict, chart_history, events = await asyncio.gather(
                await_monitor(self.drift_client.get_verdict(stream)),
                await_monitor(self.drift_client.get_chart_history(stream)),
                await_monitor(self.drift_client.get_events(stream)),
            )
        except RequestRejected as error:
            return unknown_drift(model, error.message)
        drifted_images, reference_images = await asyncio.to_thread(
            self._load_thumbnails, model, verdict.state == "drift"
        )
        return ModelDrift(
            model_name=model.name,
            verdict=add_model_kind(verdict, model),
            chart_history=chart_history,
            events=tuple(events),
            drifted_images=tuple(drifted_images),
            reference_images=tuple(reference_images),
        )

    def _load_thumbnails(self, model: Model, is_drifting: bool) -> tuple[CaptionedPngs, CaptionedPngs]:
        """Return thumbnails of drifted captures, if there is drift, and of the reference; none of rows and texts."""
        if model.current.bundle.kind not in KINDS_OF_IMAGES:
            return [], []
        drifted_images: CaptionedPngs = []
        if is_drifting and self.capture_store:
            try:
                captures = [
                    capture
                    for capture in self.capture_store.list_captures("drift", 4 * MAX_THUMBNAILS_PER_ROW)
                    if capture.model == model.name
                ]
                drifted_images = [
                    (make_thumbnail(self.capture_store.read_png(capture.id)), format_caption(capture))
                    for capture in captures[:MAX_THUMBNAILS_PER_ROW]
                ]
            except (OSError, EquipoiseError):  # the page is shown without images; GET /capture says why
                drifted_images = []
        version = model.current
        if version.id not in self.thumbnails_by_version:
            self.thumbnails_by_version = {version.id: make_reference_thumbnails(version.bundle)}
        return drifted_images, self.thumbnails_by_version[version.id]


def make_reference_thumbnails(bundle: Bundle) -> CaptionedPngs:
    """Return images of a bundle's reference as thumbnails, with boxes if its model is a detector."""
    arrays = bundle.load_reference_arrays()
    if isinstance(bundle, BoxesBundle):
        return boxed_thumbnails(arrays, bundle.classes, bundle.threshold)
    return reference_thumbnails(arrays, bundle.classes)


def unknown_drift(model: Model, reason: str) -> ModelDrift:
    """Return the drift of a model whose requests cannot be compared with a reference."""
    return ModelDrift(model_name=model.name, verdict=add_model_kind(StreamVerdict(state="unknown", why=reason), model))


def format_caption(capture: CaptureMetadata) -> str:
    """Return the caption of a captured image: the predicted label and its score."""
    return f"{capture.label} {max(capture.scores.values(), default=0.0):.0%}"
