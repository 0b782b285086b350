"""The monitor as Ray runs it: one actor for all replicas, where it was again after its death.

An actor and no deployment of Ray Serve's: a call costs a quarter, and it costs nothing while nobody calls. The replica
that needed it first owns it; when that goes, the next that misses it starts it anew.
"""

import asyncio
import logging
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

import ray

from equipoise.drift.monitor.monitor import Monitor, Report
from services.monitoring.log_setup import logger, told
from services.monitoring.webhook import post

TOLD_AGAIN = 3600.0  # seconds in which a webhook is told of a stream's alarms once

log = logging.getLogger("equipoise.drift")


@ray.remote(num_cpus=0, max_restarts=-1)
class Drift:
    """What replicas report to, and what is asked about drift."""

    def __init__(self, folder: str, run_length: float, tick: float, webhook: str | None = None) -> None:
        logger(log.name, logging.INFO, told())
        self.monitor = Monitor(Path(folder), run_length, tick)
        self.monitor.resume(time.time())
        self.webhook = webhook
        self.told: dict[str, float] = {}
        self.telling: set[asyncio.Task[None]] = set()

    async def take(self, report: Report) -> dict[str, Any]:
        """A replica's report: up to which tick it was taken, what is not known yet, and how things stand."""
        streams = {stream.partition("\n")[0] for tick in report.ticks for stream in tick.rows}
        unknown = sorted(streams - self.monitor.known.keys())
        if unknown:  # first its reference, then its sums
            return {"taken": 0, "unknown": unknown, "states": {}}
        taken = self.monitor.take(report, time.time())
        while self.monitor.fresh:
            self._tell(self.monitor.fresh.pop(0))
        return {"taken": taken, "unknown": [], "states": self._states()}

    def _states(self) -> dict[str, dict[str, Any]]:
        """For gauges: of each model's stream, the state and how high its charts are."""
        found = {}
        for stream in self.monitor.known:
            watch = self.monitor.watches.get(stream)
            if watch is None or not watch.pictures:
                continue
            found[stream] = {
                "drift": watch.alarm is not None,
                "images": watch.images,
                "threshold": watch.threshold(),
                "charts": watch.by_name(),
                "lost": self.monitor.ledger.lost,
            }
        return found

    async def register(self, stream: str, arrays: dict[str, Any]) -> None:
        """The reference of a bundle."""
        self.monitor.register(stream, arrays)

    async def verdict(self, stream: str) -> dict[str, Any]:
        """On one model's requests."""
        return self.monitor.judged(stream)

    async def history(self, stream: str) -> list[dict[str, Any]]:
        """What happened, the latest last."""
        return [
            one
            for one in self.monitor.events
            if one["stream"] in ("", stream) or one["stream"].startswith(f"{stream}/")
        ]

    async def trace(self, stream: str) -> dict[str, Any]:
        """How high charts were, step by step."""
        return self.monitor.traced(stream)

    async def reset(self, stream: str) -> None:
        """Begin anew."""
        log.warning("the charts of %s begin anew: asked by HTTP", stream)
        self.monitor.reset(stream, time.time())

    def _tell(self, event: dict[str, Any]) -> None:
        """An alarm to the log, and to the webhook unless it was told of that stream lately."""
        log.warning("drift in %s: %s", event["stream"], event["why"])
        now = time.monotonic()
        if self.webhook and now - self.told.get(event["stream"], -TOLD_AGAIN) >= TOLD_AGAIN:
            self.told[event["stream"]] = now
            task = asyncio.create_task(self._post(self.webhook, event))
            self.telling.add(task)
            task.add_done_callback(self.telling.discard)

    async def _post(self, url: str, event: dict[str, Any]) -> None:
        try:
            await asyncio.to_thread(post, url, event)
        except (OSError, ValueError, HTTPException) as error:
            log.error("the webhook could not be told (%s)", error)
