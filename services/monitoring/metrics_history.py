"""What was counted, noted every few seconds: so that a page that is opened now shows the minutes before."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from prometheus_client import Metric

from services.monitoring.metrics import Metrics

SNAPSHOT_SECONDS = 5.0
MIN_SNAPSHOT_GAP_SECONDS = 1.0  # seconds, below which a rate says little
MAX_SNAPSHOTS = 240  # notes: twenty minutes
PREDICTION_PATHS = ("/predict", "/models/{name}/predict", "/v2/models/{name}/infer")
"""requests that a page tells of; it does not count those that it makes itself"""


class MetricsHistory:
    """The latest notes of a replica, each of the sums over all replicas of its machine."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.snapshots: deque[dict[str, Any]] = deque(maxlen=MAX_SNAPSHOTS)

    def take_snapshot(self) -> dict[str, Any]:
        """What one more would be."""
        return {"time": time.time(), **aggregate_samples(self.metrics.collect_families())}

    def recent_snapshots(self) -> list[dict[str, Any]]:
        """The notes and how it is now, which is not kept: the more looked, the shorter would be what is kept."""
        last = self.take_snapshot()
        return [*(one for one in [*self.snapshots] if one["time"] < last["time"] - MIN_SNAPSHOT_GAP_SECONDS), last]

    async def collect_snapshots(self) -> None:
        """Every few seconds."""
        while True:
            self.snapshots.append(await asyncio.to_thread(self.take_snapshot))
            await asyncio.sleep(SNAPSHOT_SECONDS)


def aggregate_samples(families: Iterable[Metric]) -> dict[str, dict[str, float]]:
    """Counts by what pages show."""
    found: dict[str, dict[str, float]] = {
        name: {} for name in ("requests", "refused", "seconds", "pictures", "batches")
    }
    for sample in (sample for family in families for sample in family.samples):
        labels, part, key = sample.labels, sample.name.removeprefix("equipoise_"), ""
        told = labels.get("path") in PREDICTION_PATHS
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
