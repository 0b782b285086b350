"""How replicas reach the monitor."""

import asyncio
import threading
from typing import Any

from ray.exceptions import ActorDiedError

from equipoise.drift.monitor.monitor import Report
from services.monitoring.drift_actor import DriftActor

CALL_TIMEOUT_SECONDS = 10.0  # for an answer


class DriftClient:
    """Calls of an actor that whoever needs it first starts; from any event loop."""

    def __init__(self, actor_name: str, *actor_args: Any) -> None:
        self.actor_name = actor_name
        self.actor_args = actor_args
        self.actor: Any = None
        self.start_lock = threading.Lock()

    async def submit_report(self, report: Report) -> dict[str, Any]:
        """One report."""
        found: dict[str, Any] = await self._call_actor("submit_report", report)
        return found

    async def register_reference(self, stream: str, arrays: dict[str, Any]) -> None:
        """One reference."""
        await self._call_actor("register_reference", stream, arrays)

    async def get_verdict(self, stream: str) -> dict[str, Any]:
        """On one model's requests."""
        found: dict[str, Any] = await self._call_actor("get_verdict", stream)
        return found

    async def get_events(self, stream: str) -> list[dict[str, Any]]:
        """What happened to them."""
        found: list[dict[str, Any]] = await self._call_actor("get_events", stream)
        return found

    async def get_chart_history(self, stream: str) -> dict[str, Any]:
        """How high charts were, step by step."""
        found: dict[str, Any] = await self._call_actor("get_chart_history", stream)
        return found

    async def reset_charts(self, stream: str) -> None:
        """Begin anew."""
        await self._call_actor("reset_charts", stream)

    async def _call_actor(self, method: str, *args: Any) -> Any:
        actor = self.actor or await asyncio.to_thread(self._get_or_start_actor)
        try:
            return await asyncio.wait_for(
                asyncio.wrap_future(getattr(actor, method).remote(*args).future()), CALL_TIMEOUT_SECONDS
            )
        except ActorDiedError:  # one that is only being restarted is kept: it ends with the handle of who started it
            if self.actor is actor:
                self.actor = None
            raise

    def _get_or_start_actor(self) -> Any:
        """The actor of that name, started unless it is there."""
        actor: Any = DriftActor
        with self.start_lock:
            if self.actor is None:
                self.actor = actor.options(name=self.actor_name, get_if_exists=True).remote(*self.actor_args)
            return self.actor
