"""Snapshots of the metrics every 5 s, so that a newly opened status page can show the last 20 minutes."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from prometheus_client import Metric

from services.monitoring.metrics import Metrics

SNAPSHOT_SECONDS = 5.0
MIN_SNAPSHOT_GAP_SECONDS = 1.0  # a rate over less time says little
MAX_SNAPSHOTS = 240  # twenty minutes
PREDICTION_PATHS = ("/predict", "/models/{name}/predict", "/v2/models/{name}/infer")
"""paths whose requests pages show; the requests of the pages themselves are left out"""


class MetricsHistory:
    """Latest snapshots of a replica, each with the sums over all replicas of its machine."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.snapshots: deque[dict[str, Any]] = deque(maxlen=MAX_SNAPSHOTS)

    def take_snapshot(self) -> dict[str, Any]:
        """Return the present metrics with the time in seconds; `collect_snapshots` stores them."""
        return {"time": time.time(), **aggregate_samples(self.metrics.collect_families())}

    def recent_snapshots(self) -> list[dict[str, Any]]:
        """Return the stored snapshots and one of now, which is not stored: frequent calls would shorten the history."""
        last = self.take_snapshot()
        newest = last["time"] - MIN_SNAPSHOT_GAP_SECONDS
        return [*(snapshot for snapshot in [*self.snapshots] if snapshot["time"] < newest), last]

    async def collect_snapshots(self) -> None:
        """Store a snapshot every 5 s, until cancelled."""
        while True:
            self.snapshots.append(await asyncio.to_thread(self.take_snapshot))
            await asyncio.sleep(SNAPSHOT_SECONDS)


def aggregate_samples(families: Iterable[Metric]) -> dict[str, dict[str, float]]:
    """Sum the metrics that pages show, by kind and then by label."""
    totals: dict[str, dict[str, float]] = {
        name: {} for name in ("requests", "refused", "seconds", "pictures", "batches")
    }
    for sample in (sample for family in families for sample in family.samples):
        labels, part, key = sample.labels, sample.name.removeprefix("equipoise_"), ""
        is_prediction = labels.get("path") in PREDICTION_PATHS
        if part == "requests_total" and is_prediction:
            part, key = "requests", labels["status"]
        elif part == "request_seconds_bucket" and is_prediction:
            part, key = "seconds", labels["le"]
        elif part == "refused_total":
            part, key = "refused", labels["reason"]
        elif part == "pictures_total":
            part, key = "pictures", f"{labels['model']} {labels['version']}"
        elif part == "batch_pictures_bucket":
            part, key = "batches", labels["le"]
        if key:
            totals[part][key] = totals[part].get(key, 0.0) + sample.value
    return totals
