"""Snapshots of the metrics every 5 s, so that a newly opened status page can show the last 20 minutes."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import get_args

from prometheus_client import Metric

from dashboards.metrics_snapshot import MetricName, MetricsSnapshot
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
        self.snapshots: deque[MetricsSnapshot] = deque(maxlen=MAX_SNAPSHOTS)

    def take_snapshot(self) -> MetricsSnapshot:
        """Return the present metrics; `collect_snapshots` stores them."""
        return MetricsSnapshot(time=time.time(), **aggregate_samples(self.metrics.collect_families()))

    def recent_snapshots(self) -> list[MetricsSnapshot]:
        """Return the stored snapshots and one of now, which is not stored: frequent calls would shorten the history."""
        last = self.take_snapshot()
        newest = last.time - MIN_SNAPSHOT_GAP_SECONDS
        return [*(snapshot for snapshot in [*self.snapshots] if snapshot.time < newest), last]

    async def collect_snapshots(self) -> None:
        """Store a snapshot every 5 s, until cancelled."""
        while True:
            self.snapshots.append(await asyncio.to_thread(self.take_snapshot))
            await asyncio.sleep(SNAPSHOT_SECONDS)


def aggregate_samples(families: Iterable[Metric]) -> dict[MetricName, dict[str, float]]:
    """Sum the metrics that pages show, by kind and then by label."""
    totals: dict[MetricName, dict[str, float]] = {name: {} for name in get_args(MetricName)}
    for sample in (sample for family in families for sample in family.samples):
        labels, name = sample.labels, sample.name.removeprefix("equipoise_")
        is_prediction = labels.get("path") in PREDICTION_PATHS
        if name == "requests_total" and is_prediction:
            count = totals["requests"], labels["status"]
        elif name == "request_seconds_bucket" and is_prediction:
            count = totals["seconds"], labels["le"]
        elif name == "refused_total":
            count = totals["refused"], labels["reason"]
        elif name == "pictures_total":
            count = totals["pictures"], f"{labels['model']} {labels['version']}"
        elif name == "batch_pictures_bucket":
            count = totals["batches"], labels["le"]
        else:
            continue
        counts, label = count
        counts[label] = counts.get(label, 0.0) + sample.value
    return totals
