"""Ray actor that runs the drift monitor for all replicas and resumes its state after a restart.

It is an actor and not a deployment of Ray Serve: a call costs a quarter as much, and an idle actor costs nothing. The
replica that needs it first owns it; when that replica ends, the next one that misses the actor starts it again.
"""

import asyncio
import logging
import time
from http.client import HTTPException
from pathlib import Path

import ray

from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.drift.monitor.monitor import Monitor, Report
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.type_aliases import AnyArray
from services.monitoring.drift_replies import ReportReply, StreamState
from services.monitoring.log_setup import configure_logger, create_stderr_handler
from services.monitoring.webhook import post_event

WEBHOOK_COOLDOWN_SECONDS = 3600.0  # in which at most one alarm of a stream is posted

logger = logging.getLogger(__name__)


@ray.remote(num_cpus=0, max_restarts=-1)
class DriftActor:
    """Drift monitor as a Ray actor: receives the reports of replicas and answers questions about drift."""

    def __init__(
        self, state_dir: str, requests_per_false_alarm: float, tick_seconds: float, webhook_url: str | None = None
    ) -> None:
        configure_logger("services", logging.INFO, create_stderr_handler("equipoise.drift"))
        self.monitor = Monitor(Path(state_dir), requests_per_false_alarm, tick_seconds)
        self.monitor.resume(time.time())
        self.webhook_url = webhook_url
        self.last_webhook_times: dict[str, float] = {}
        self.webhook_tasks: set[asyncio.Task[None]] = set()

    async def submit_report(self, report: Report) -> ReportReply:
        """Take a replica's report; return the last tick taken, the streams without a reference, and all states."""
        streams = {key.all_sources for tick in report.ticks for key in tick.rows}
        unknown = sorted(streams - self.monitor.profiles.keys(), key=str)
        if unknown:  # the replica registers the reference first and then reports again
            return ReportReply(unknown=unknown)
        taken = self.monitor.submit_report(report, time.time())
        while self.monitor.unsent_alarms:
            self._announce_alarm(self.monitor.unsent_alarms.pop(0))
        return ReportReply(taken=taken, states=self._stream_states())

    def _stream_states(self) -> dict[StreamKey, StreamState]:
        """Return the state and chart values of each stream, for the gauges."""
        states = {}
        for stream in self.monitor.profiles:
            detector = self.monitor.detectors.get(stream)
            if detector is None or not detector.observed_images:
                continue
            states[stream] = StreamState.from_detector(detector, self.monitor.ledger.lost)
        return states

    async def register_reference(self, stream: StreamKey, arrays: dict[str, AnyArray]) -> None:
        """Register the reference profile of a stream's bundle."""
        self.monitor.register(stream, arrays)

    async def get_verdict(self, stream: StreamKey) -> StreamVerdict:
        """Return the drift verdict of a stream."""
        return self.monitor.compute_verdict(stream)

    async def get_events(self, stream: StreamKey) -> list[DriftEvent]:
        """Return the events of a stream, its sources and the monitor itself, the latest last."""
        return [
            event
            for event in self.monitor.events
            if event.stream in ("", str(stream)) or event.stream.startswith(f"{stream}/")
        ]

    async def get_chart_history(self, stream: StreamKey) -> ChartHistory:
        """Return the past values of a stream's charts, step by step."""
        return self.monitor.chart_history(stream)

    async def reset_charts(self, stream: StreamKey) -> None:
        """Reset the charts of a stream."""
        logger.warning("charts of %s were reset by an HTTP request", stream)
        self.monitor.reset(stream, time.time())

    def _announce_alarm(self, event: DriftEvent) -> None:
        """Log an alarm, and post it to the webhook unless one of that stream was posted in the last hour."""
        logger.warning("drift in %s: %s", event.stream, event.verdict.why if event.verdict else event.why)
        now = time.monotonic()
        posted_at = self.last_webhook_times.get(event.stream, -WEBHOOK_COOLDOWN_SECONDS)
        if self.webhook_url and now - posted_at >= WEBHOOK_COOLDOWN_SECONDS:
            self.last_webhook_times[event.stream] = now
            task = asyncio.create_task(self._post_webhook(self.webhook_url, event))
            self.webhook_tasks.add(task)
            task.add_done_callback(self.webhook_tasks.discard)

    async def _post_webhook(self, url: str, event: DriftEvent) -> None:
        try:
            await asyncio.to_thread(post_event, url, event.to_json())
        except (OSError, UnicodeError, HTTPException) as error:  # UnicodeError: a host name that IDNA does not allow
            logger.error("cannot post an alarm to the webhook: %s", error)
