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
from services.monitoring.log_setup import configure_logger, create_stderr_handler
from services.monitoring.webhook import post_event

WEBHOOK_COOLDOWN_SECONDS = 3600.0  # seconds in which a webhook is told of a stream's alarms once

logger = logging.getLogger("equipoise.drift")


@ray.remote(num_cpus=0, max_restarts=-1)
class DriftActor:
    """What replicas report to, and what is asked about drift."""

    def __init__(
        self, state_dir: str, requests_per_false_alarm: float, tick_seconds: float, webhook_url: str | None = None
    ) -> None:
        configure_logger(logger.name, logging.INFO, create_stderr_handler())
        self.monitor = Monitor(Path(state_dir), requests_per_false_alarm, tick_seconds)
        self.monitor.resume(time.time())
        self.webhook_url = webhook_url
        self.last_webhook_times: dict[str, float] = {}
        self.webhook_tasks: set[asyncio.Task[None]] = set()

    async def submit_report(self, report: Report) -> dict[str, Any]:
        """A replica's report: up to which tick it was taken, what is not known yet, and how things stand."""
        streams = {stream.partition("\n")[0] for tick in report.ticks for stream in tick.rows}
        unknown = sorted(streams - self.monitor.profiles.keys())
        if unknown:  # first its reference, then its sums
            return {"taken": 0, "unknown": unknown, "states": {}}
        taken = self.monitor.submit_report(report, time.time())
        while self.monitor.unsent_alarms:
            self._announce_alarm(self.monitor.unsent_alarms.pop(0))
        return {"taken": taken, "unknown": [], "states": self._stream_states()}

    def _stream_states(self) -> dict[str, dict[str, Any]]:
        """For gauges: of each model's stream, the state and how high its charts are."""
        found = {}
        for stream in self.monitor.profiles:
            watch = self.monitor.detectors.get(stream)
            if watch is None or not watch.observed_images:
                continue
            found[stream] = {
                "drift": watch.alarm is not None,
                "images": watch.answered_images,
                "threshold": watch.threshold(),
                "charts": watch.highest_by_name(),
                "lost": self.monitor.ledger.lost,
            }
        return found

    async def register_reference(self, stream: str, arrays: dict[str, Any]) -> None:
        """The reference of a bundle."""
        self.monitor.register(stream, arrays)

    async def get_verdict(self, stream: str) -> dict[str, Any]:
        """On one model's requests."""
        return self.monitor.compute_verdict(stream)

    async def get_events(self, stream: str) -> list[dict[str, Any]]:
        """What happened, the latest last."""
        return [
            one
            for one in self.monitor.events
            if one["stream"] in ("", stream) or one["stream"].startswith(f"{stream}/")
        ]

    async def get_chart_history(self, stream: str) -> dict[str, Any]:
        """How high charts were, step by step."""
        return self.monitor.chart_history(stream)

    async def reset_charts(self, stream: str) -> None:
        """Begin anew."""
        logger.warning("the charts of %s begin anew: asked by HTTP", stream)
        self.monitor.reset(stream, time.time())

    def _announce_alarm(self, event: dict[str, Any]) -> None:
        """An alarm to the log, and to the webhook unless it was told of that stream lately."""
        logger.warning("drift in %s: %s", event["stream"], event["why"])
        now = time.monotonic()
        if (
            self.webhook_url
            and now - self.last_webhook_times.get(event["stream"], -WEBHOOK_COOLDOWN_SECONDS)
            >= WEBHOOK_COOLDOWN_SECONDS
        ):
            self.last_webhook_times[event["stream"]] = now
            task = asyncio.create_task(self._post_webhook(self.webhook_url, event))
            self.webhook_tasks.add(task)
            task.add_done_callback(self.webhook_tasks.discard)

    async def _post_webhook(self, url: str, event: dict[str, Any]) -> None:
        try:
            await asyncio.to_thread(post_event, url, event)
        except (OSError, ValueError, HTTPException) as error:
            logger.error("the webhook could not be told (%s)", error)
