"""Snapshots of the metrics every 5 s, so that a newly opened status page can show the last 20 minutes."""

import asyncio
import time
from collections import deque

from dashboards.metrics_snapshot import MetricsSnapshot
from services.monitoring.metric_sums import aggregate_samples
from services.monitoring.metrics import Metrics

SNAPSHOT_SECONDS = 5.0
MIN_SNAPSHOT_GAP_SECONDS = 1.0  # a rate over less time says little
MAX_SNAPSHOTS = 240  # twenty minutes


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
