"""What was counted, noted every few seconds: so that a page that is opened now shows the minutes before."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from prometheus_client import Metric

from services.monitoring.metrics import Metrics

SECONDS = 5.0
APART = 1.0  # seconds, below which a rate says little
MOST = 240  # notes: twenty minutes
PREDICTIONS = ("/predict", "/models/{name}/predict", "/v2/models/{name}/infer")
"""requests that a page tells of; it does not count those that it makes itself"""


class Noted:
    """The latest notes of a replica, each of the sums over all replicas of its machine."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.notes: deque[dict[str, Any]] = deque(maxlen=MOST)

    def now(self) -> dict[str, Any]:
        """What one more would be."""
        return {"time": time.time(), **counted(self.metrics.collected())}

    def lately(self) -> list[dict[str, Any]]:
        """The notes and how it is now, which is not kept: the more looked, the shorter would be what is kept."""
        last = self.now()
        return [*(one for one in [*self.notes] if one["time"] < last["time"] - APART), last]

    async def run(self) -> None:
        """Every few seconds."""
        while True:
            self.notes.append(await asyncio.to_thread(self.now))
            await asyncio.sleep(SECONDS)


def counted(families: Iterable[Metric]) -> dict[str, dict[str, float]]:
    """Counts by what pages show."""
    found: dict[str, dict[str, float]] = {
        name: {} for name in ("requests", "refused", "seconds", "pictures", "batches")
    }
    for sample in (sample for family in families for sample in family.samples):
        labels, part, key = sample.labels, sample.name.removeprefix("equipoise_"), ""
        told = labels.get("path") in PREDICTIONS
        if part == "requests_total" and told:
            part, key = "requests", labels["status"]
        elif part == "request_seconds_bucket" and told:
            part, key = "seconds", labels["le"]
        elif part == "refused_total":
            part, key = "refused", labels["reason"]
        elif part == "pictures_total":
            part, key = "pictures", f"{labels['model']} {labels['version']}"
        elif part == "batch_pictures_bucket":
            part, key = "batches", labels["le"]
        if key:
            found[part][key] = found[part].get(key, 0.0) + sample.value
    return found
