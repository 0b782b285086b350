"""How replicas reach the monitor."""

import asyncio
from typing import Any

from equipoise.drift.monitor import Report

SECONDS = 10.0  # for an answer


class Link:
    """Calls by a handle of Ray Serve's, from any event loop."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

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

    async def reset(self, stream: str) -> None:
        """Begin anew."""
        await self._call("reset", stream)

    async def _call(self, name: str, *values: Any) -> Any:
        return await asyncio.wait_for(getattr(self.handle, name).remote(*values), SECONDS)
