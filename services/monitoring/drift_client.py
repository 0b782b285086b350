"""Client with which replicas call the drift monitor's actor."""

import asyncio
import threading
from typing import Any

from ray.exceptions import ActorDiedError

from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.drift.monitor.monitor import Report
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.type_aliases import AnyArray
from services.monitoring.drift_actor import DriftActor
from services.monitoring.drift_replies import ReportReply

CALL_TIMEOUT_SECONDS = 10.0  # for the answer to a call


class DriftClient:
    """Calls the drift actor from any event loop; the first call starts the actor if it does not run."""

    def __init__(self, actor_name: str, *actor_args: Any) -> None:
        self.actor_name = actor_name
        self.actor_args = actor_args
        self.actor: Any = None
        self.start_lock = threading.Lock()

    async def submit_report(self, report: Report) -> ReportReply:
        """Send a replica's report; return what the monitor took and the states of all streams."""
        reply: ReportReply = await self._call_actor("submit_report", report)
        return reply

    async def register_reference(self, stream: StreamKey, arrays: dict[str, AnyArray]) -> None:
        """Register the reference profile of a stream's bundle."""
        await self._call_actor("register_reference", stream, arrays)

    async def get_verdict(self, stream: StreamKey) -> StreamVerdict:
        """Return the drift verdict of a stream."""
        verdict: StreamVerdict = await self._call_actor("get_verdict", stream)
        return verdict

    async def get_events(self, stream: StreamKey) -> list[DriftEvent]:
        """Return the events of a stream, the latest last."""
        events: list[DriftEvent] = await self._call_actor("get_events", stream)
        return events

    async def get_chart_history(self, stream: StreamKey) -> ChartHistory:
        """Return the past values of a stream's charts, step by step."""
        history: ChartHistory = await self._call_actor("get_chart_history", stream)
        return history

    async def reset_charts(self, stream: StreamKey) -> None:
        """Reset the charts of a stream."""
        await self._call_actor("reset_charts", stream)

    async def _call_actor(self, method: str, *args: Any) -> Any:
        actor = self.actor or await asyncio.to_thread(self._get_or_start_actor)
        try:
            return await asyncio.wait_for(
                asyncio.wrap_future(getattr(actor, method).remote(*args).future()), CALL_TIMEOUT_SECONDS
            )
        except ActorDiedError:  # keep the handle of an actor that only restarts: it ends with the handle of its owner
            if self.actor is actor:
                self.actor = None
            raise

    def _get_or_start_actor(self) -> Any:
        """Return the actor's handle; start the actor if none of its name runs."""
        actor: Any = DriftActor
        with self.start_lock:
            if self.actor is None:
                self.actor = actor.options(name=self.actor_name, get_if_exists=True).remote(*self.actor_args)
            return self.actor
