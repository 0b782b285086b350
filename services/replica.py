"""Replica of the prediction service: it holds models and listens for HTTP requests by itself.

Ray places, health-checks, restarts and scales it. Images do not pass through Ray: a proxy or a handle would cost
several times the CPU time of the answer itself.
"""

import asyncio
import gc
import logging
import time
from logging.handlers import WatchedFileHandler
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from pydantic import ValidationError

from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.captures.store import CaptureStore
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import file_fingerprint
from services.http.server import HttpServer
from services.labelling.application import LabellingApplication
from services.labelling.capture_page import build_capture_page
from services.monitoring.capture_sampler import LISTING_SECONDS, CaptureSampler
from services.monitoring.drift_client import DriftClient
from services.monitoring.drift_observer import DriftObserver
from services.monitoring.log_setup import configure_logger, create_stderr_handler
from services.monitoring.metrics import Metrics, prepare_metrics_folder
from services.monitoring.metrics_history import MetricsHistory
from services.routes.application import HttpApplication
from services.scaling import BUSY_METRIC_NAME
from services.serving.model_versions import ModelSpec
from services.serving.models import ModelRegistry
from services.settings import ReplicaSettings

REPLICA_DRAIN_SECONDS = 20.0

logger = logging.getLogger(__name__)


class Replica:
    """Deployment class of the prediction service: models, HTTP server, drift observer and capture store."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        self.settings = ReplicaSettings(**settings)
        torch.set_num_threads(1)  # engines were timed so; there are as many replicas as cores
        self.limits = self.settings.limits
        configure_logger("services", logging.WARNING, create_stderr_handler("equipoise.service"))
        prepare_metrics_folder()
        self.metrics = Metrics()
        self.metrics_history = MetricsHistory(self.metrics)
        self.drift_client = create_drift_client(self.settings)
        self.capture_store = (
            CaptureStore(self.settings.capture_dir, self.settings.max_captures, listing_seconds=LISTING_SECONDS)
            if self.settings.capture_dir
            else None
        )
        capture_sampler = CaptureSampler(self.capture_store) if self.capture_store else None
        self.observer = (
            DriftObserver(
                self.metrics,
                self.drift_client,
                self.settings.report_seconds,
                capture_sampler,
                self.settings.drift_time_fraction,
            )
            if self.drift_client
            else None
        )
        self.background_tasks: list[asyncio.Task[None]] = []
        self.application: HttpApplication | None = None
        self.model_specs: dict[str, ModelSpec] = {}
        self.fingerprints: dict[str, str | None] = {}
        self.swap_lock = asyncio.Lock()
        self.watch_task: asyncio.Task[None] | None = None
        self.last_busy_sample = (time.monotonic(), 0.0)
        listen = self.settings
        self.http_server = HttpServer(listen.host, listen.port, listen.certfile, listen.keyfile)

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Swap to the bundles of a new user_config while requests continue to be answered."""
        async with self.swap_lock:
            try:
                self.model_specs = {name: ModelSpec(**spec) for name, spec in user_config.items()}
            except (TypeError, ValidationError) as error:  # not a mapping, or wrong keys or values
                problem = f"user_config must map the name of each model to its bundle: {error}"
                self._reject_swap(EquipoiseError("option-format", problem))
            else:
                await asyncio.to_thread(self._apply_specs)
        if not self.background_tasks:
            coroutines = [
                self.metrics_history.collect_snapshots(),
                *([self.observer.report_every_tick()] if self.observer else []),
            ]
            self.background_tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        if self.settings.reload_seconds and self.watch_task is None:
            self.watch_task = asyncio.create_task(self._watch_bundles(self.settings.reload_seconds))

    async def _watch_bundles(self, seconds: float) -> None:
        """Swap bundles in whenever they were replaced under the same name."""
        while True:
            await asyncio.sleep(seconds)
            try:
                async with self.swap_lock:
                    if await asyncio.to_thread(self._bundles_changed):
                        await asyncio.to_thread(self._apply_specs)
            except Exception:  # a store that cannot be reached now may be reached later
                logger.exception("cannot check the bundles for changes")

    def _bundles_changed(self) -> bool:
        """Return whether a bundle was replaced; not yet while one is being replaced, and so is missing."""
        now = bundle_fingerprints(self.model_specs)
        return now != self.fingerprints and None not in now.values()

    def _apply_specs(self) -> None:
        self.fingerprints = bundle_fingerprints(self.model_specs) if self.settings.reload_seconds else {}
        if self.application is None:
            self.application = self.http_server.start(self._create_application)
            return
        try:
            self.application.model_registry.apply_specs(self.model_specs)
        except EquipoiseError as error:  # the present bundles continue to answer
            self._reject_swap(error)
            return
        self.application.model_registry.load_error = None
        self.metrics.bundle_swaps.labels("done").inc()

    def _reject_swap(self, error: EquipoiseError) -> None:
        """Log that no bundle was swapped; raise the error if the replica has no bundle yet."""
        if self.application is None:
            raise error
        self.application.model_registry.load_error = str(error)
        logger.error("no bundle was swapped: %s", error)
        self.metrics.bundle_swaps.labels("refused").inc()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the fraction of the time since the last call that was spent computing."""
        if self.application is None:
            return {BUSY_METRIC_NAME: 0.0}
        last_sample = self.last_busy_sample
        self.last_busy_sample = time.monotonic(), self.application.model_registry.busy_seconds()
        seconds, busy = (now - then for now, then in zip(self.last_busy_sample, last_sample, strict=True))
        return {BUSY_METRIC_NAME: max(0.0, busy) / max(seconds, 1e-9)}

    def _create_application(self, loop: asyncio.AbstractEventLoop) -> HttpApplication:
        registry = ModelRegistry(self.limits, loop, self.observer or self.metrics, self.observer is not None)
        registry.apply_specs(self.model_specs)
        gc.collect()
        gc.freeze()  # what exists now stays: collecting it again and again would delay requests
        path = self.settings.access_log
        access_log = (
            configure_logger("equipoise.access", logging.INFO, create_access_log_handler(path)) if path else None
        )
        api_keys = self.settings.read_api_keys()
        return HttpApplication(
            registry,
            self.limits,
            self.metrics,
            api_keys,
            access_log,
            self.drift_client,
            self.capture_store,
            self.metrics_history,
            self._create_label_page(registry, api_keys),
        )

    def _create_label_page(self, registry: ModelRegistry, api_keys: tuple[str, ...]) -> LabellingApplication | None:
        """Create the page on which people label captures; None without a folder for the labels."""
        if self.settings.label_dir is None or self.settings.capture_dir is None:
            return None
        bundles = [model.current.bundle for model in registry.models.values()]
        return build_capture_page(self.settings.capture_dir, self.settings.label_dir, bundles, api_keys)

    def check_health(self) -> None:
        """Raise RuntimeError if the HTTP server has stopped; Ray then replaces this replica."""
        if self.application is not None and not self.http_server.is_alive:
            raise RuntimeError("the HTTP server has stopped")

    def __del__(self) -> None:
        """Answer open requests, then stop; Ray deletes the object when it shuts the replica down."""
        if application := getattr(self, "application", None):
            application.start_draining()
        if http_server := getattr(self, "http_server", None):
            http_server.close(REPLICA_DRAIN_SECONDS)


def create_drift_client(settings: ReplicaSettings) -> DriftClient | None:
    """Create the client of the drift monitor; return None if drift detection is off."""
    if not settings.drift:
        return None
    state_dir = settings.state_dir or str(Path(gettempdir()) / f"equipoise-drift-{settings.port}")
    return DriftClient(
        f"equipoise-drift-{settings.port}",
        state_dir,
        settings.requests_per_false_alarm,
        settings.report_seconds,
        settings.webhook,
    )


def create_access_log_handler(path: str) -> logging.Handler:
    """Create the handler of the access log, a file that replicas share and that may be rotated at any time."""
    return WatchedFileHandler(path, encoding="utf-8")


def bundle_fingerprints(model_specs: dict[str, ModelSpec]) -> dict[str, str | None]:
    """Return the present fingerprint of each bundle's manifest by bundle path; None where it is missing."""
    paths = {path for spec in model_specs.values() for path in spec.bundle_paths()}
    return {path: file_fingerprint(f"{path.rstrip('/')}/{MANIFEST_FILE}") for path in paths}
