"""A replica: it holds models, and listens for requests by itself.

Ray places it, watches its health, restarts it and scales it. No picture goes through Ray: a proxy or a handle would
cost several times the CPU of the answer itself.
"""

import asyncio
import gc
import logging
import time
from logging.handlers import WatchedFileHandler
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from equipoise.bundle import manifest
from equipoise.captures.store import Captures
from equipoise.storage import atomic as store
from services.http.server import Listener
from services.monitoring.capture_sampler import Keeper
from services.monitoring.drift_client import Link
from services.monitoring.drift_observer import Observer
from services.monitoring.log_setup import logger, told
from services.monitoring.metrics import Metrics, prepare
from services.monitoring.metrics_history import Noted
from services.routes.application import Service
from services.scaling import BUSY
from services.serving.model_versions import Wanted
from services.serving.models import Models
from services.settings import Settings

DRAIN_SECONDS = 20.0

log = logging.getLogger("equipoise.service")


class Predictor:
    """One replica."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import torch

        self.settings = Settings(**settings)
        torch.set_num_threads(1)  # as engines were timed; replicas are as many as cores
        self.limits = self.settings.limits
        logger(log.name, logging.WARNING, told())
        prepare()
        self.metrics = Metrics()
        self.noted = Noted(self.metrics)
        self.link = linked(self.settings)
        self.captures = Captures(self.settings.capture, self.settings.captures) if self.settings.capture else None
        keeper = Keeper(self.captures) if self.captures else None
        self.observer = Observer(self.metrics, self.link, self.settings.tick, keeper) if self.link else None
        self.reporting: list[asyncio.Task[None]] = []
        self.service: Service | None = None
        self.wanted: dict[str, Wanted] = {}
        self.stamps: dict[str, str | None] = {}
        self.lock = asyncio.Lock()
        self.watching: asyncio.Task[None] | None = None
        self.seen = (time.monotonic(), 0.0)
        asked = self.settings
        self.listener = Listener(asked.host, asked.port, asked.certfile, asked.keyfile)

    async def reconfigure(self, wanted: dict[str, Any]) -> None:
        """Swap to the bundles that are wanted now; requests go on meanwhile."""
        async with self.lock:
            try:
                self.wanted = {name: Wanted(**one) for name, one in wanted.items()}
            except (TypeError, ValueError) as error:
                self._refuse(f"user_config is not a list of models by name, each with its bundle ({error})")
            else:
                await asyncio.to_thread(self._apply)
        if not self.reporting:
            tasks = [self.noted.run(), *([self.observer.run()] if self.observer else [])]
            self.reporting = [asyncio.create_task(one) for one in tasks]
        if self.settings.watch and self.watching is None:
            self.watching = asyncio.create_task(self._watch(self.settings.watch))

    async def _watch(self, seconds: float) -> None:
        """Swap whenever another bundle lies under the same name."""
        while True:
            await asyncio.sleep(seconds)
            try:
                async with self.lock:
                    if await asyncio.to_thread(self._changed):
                        await asyncio.to_thread(self._apply)
            except Exception:  # a store that cannot be reached now may be reached later
                log.exception("the bundles cannot be looked at")

    def _changed(self) -> bool:
        """Whether another bundle is there; while one is being replaced there is none, and nothing changes yet."""
        now = stamps(self.wanted)
        return now != self.stamps and None not in now.values()

    def _apply(self) -> None:
        self.stamps = stamps(self.wanted) if self.settings.watch else {}
        if self.service is None:
            self.service = self.listener.start(self._service)
            return
        try:
            self.service.models.apply(self.wanted)
        except ValueError as error:  # what answered goes on to answer
            self._refuse(str(error))
            return
        self.service.models.not_loaded = None
        self.metrics.swaps.labels("done").inc()

    def _refuse(self, why: str) -> None:
        """Say that nothing changed; a replica that has nothing to answer with does not start."""
        if self.service is None:
            raise ValueError(why)
        self.service.models.not_loaded = why
        log.error("nothing was swapped: %s", why)
        self.metrics.swaps.labels("refused").inc()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """How much of the time since the last call was spent computing."""
        if self.service is None:
            return {BUSY: 0.0}
        before, self.seen = self.seen, (time.monotonic(), self.service.models.busy())
        seconds, busy = (now - then for now, then in zip(self.seen, before, strict=True))
        return {BUSY: max(0.0, busy) / max(seconds, 1e-9)}

    def _service(self, loop: asyncio.AbstractEventLoop) -> Service:
        models = Models(self.limits, loop, self.observer or self.metrics, self.observer is not None)
        models.apply(self.wanted)
        gc.collect()
        gc.freeze()  # what is there now stays: to look through it again and again would hold up requests
        path = self.settings.access_log
        accesses = logger("equipoise.access", logging.INFO, lines(path)) if path else None
        return Service(
            models,
            self.limits,
            self.metrics,
            self.settings.secrets(),
            accesses,
            self.link,
            self.captures,
            self.noted,
        )

    def check_health(self) -> None:
        """Raises if nothing answers here any more."""
        if self.service is not None and not self.listener.alive:
            raise RuntimeError("the HTTP server has ended")

    def __del__(self) -> None:
        """Ray's way to say that a replica is to end: those under way are answered first."""
        if service := getattr(self, "service", None):
            service.draining = True
        if listener := getattr(self, "listener", None):
            listener.close(DRAIN_SECONDS)


def linked(settings: Settings) -> Link | None:
    """The way to the monitor, if drift is watched for."""
    if not settings.drift:
        return None
    state = settings.state or str(Path(gettempdir()) / f"equipoise-drift-{settings.port}")
    return Link(f"equipoise-drift-{settings.port}", state, settings.run_length, settings.tick, settings.webhook)


def lines(path: str) -> logging.Handler:
    """Into a file that may be moved away at any time; replicas of a machine share it."""
    return WatchedFileHandler(path, encoding="utf-8")


def stamps(wanted: dict[str, Wanted]) -> dict[str, str | None]:
    """Which file lies where each bundle is described, now."""
    paths = {path for one in wanted.values() for path in one.paths()}
    return {path: store.stamp(f"{path.rstrip('/')}/{manifest.FACTS}") for path in paths}
