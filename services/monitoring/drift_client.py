"""How replicas reach the monitor."""

import asyncio
import threading
from typing import Any

from ray.exceptions import ActorDiedError

from equipoise.drift.monitor.monitor import Report
from services.monitoring.drift_actor import Drift

SECONDS = 10.0  # for an answer


class Link:
    """Calls of an actor that whoever needs it first starts; from any event loop."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self.name = name
        self.arguments = arguments
        self.actor: Any = None
        self.lock = threading.Lock()

    async def take(self, report: Report) -> dict[str, Any]:
        """One report."""
        found: dict[str, Any] = await self._call("take", report)
        return found

    async def register(self, stream: str, arrays: dict[str, Any]) -> None:
        """One reference."""
        await self._call("register", stream, arrays)

    async def verdict(self, stream: str) -> dict[str, Any]:
        """On one model's requests."""
        found: dict[str, Any] = await self._call("verdict", stream)
        return found

    async def history(self, stream: str) -> list[dict[str, Any]]:
        """What happened to them."""
        found: list[dict[str, Any]] = await self._call("history", stream)
        return found

    async def trace(self, stream: str) -> dict[str, Any]:
        """How high charts were, step by step."""
        found: dict[str, Any] = await self._call("trace", stream)
        return found

    async def reset(self, stream: str) -> None:
        """Begin anew."""
        await self._call("reset", stream)

    async def _call(self, name: str, *values: Any) -> Any:
        actor = self.actor or await asyncio.to_thread(self._there)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(getattr(actor, name).remote(*values).future()), SECONDS)
        except ActorDiedError:  # one that is only being restarted is kept: it ends with the handle of who started it
            if self.actor is actor:
                self.actor = None
            raise

    def _there(self) -> Any:
        """The actor of that name, started unless it is there."""
        actor: Any = Drift
        with self.lock:
            if self.actor is None:
                self.actor = actor.options(name=self.name, get_if_exists=True).remote(*self.arguments)
            return self.actor
