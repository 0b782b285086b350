"""Rate, latency and errors of a service, from two looks at its metrics; each look is kept for a minute."""

import time
from collections import deque

from prometheus_client.parser import text_string_to_metric_families

from dashboards.metrics_snapshot import MetricsSnapshot
from dashboards.panels.service import classify_status, latency_quantiles, snapshot_deltas
from services.monitoring.metric_sums import aggregate_samples
from services.site.models.deployments.deployment_messages import TrafficReply

WINDOW_SECONDS = 60.0


class TrafficWindow:
    """Looks at the metrics of one service over the last minute."""

    def __init__(self) -> None:
        self.snapshots: deque[MetricsSnapshot] = deque()

    def add_metrics(self, text: str, now: float | None = None) -> TrafficReply:
        """Add the service's metrics of now, in Prometheus' text format, and return the traffic since the first look."""
        moment = time.time() if now is None else now
        latest = MetricsSnapshot(time=moment, **aggregate_samples(text_string_to_metric_families(text)))
        while len(self.snapshots) > 1 and self.snapshots[1].time <= moment - WINDOW_SECONDS:
            self.snapshots.popleft()
        self.snapshots.append(latest)
        return measure_traffic(self.snapshots[0], latest)


def measure_traffic(first: MetricsSnapshot, last: MetricsSnapshot) -> TrafficReply:
    """Return the traffic between two looks at a service's metrics."""
    total = sum(last.requests.values())
    seconds = last.time - first.time
    if seconds <= 0:
        empty = {"requests_per_second": 0.0, "refused": 0.0, "failed": 0.0, "median_ms": None, "p99_ms": None}
        return TrafficReply(seconds=0.0, total=total, **empty)  # type: ignore[arg-type] # by the names of the fields
    increases = snapshot_deltas([first, last], "requests").iloc[0].drop(["time", "seconds"]).to_dict()
    count = sum(increases.values())
    shares = {
        outcome: sum(value for status, value in increases.items() if classify_status(str(status)) == outcome)
        / max(count, 1)
        for outcome in ("refused", "failed")
    }
    quantiles = latency_quantiles([first, last]).iloc[0]
    median, p99 = (None if count == 0 else float(quantiles[q]) for q in (0.5, 0.99))
    return TrafficReply(
        seconds=seconds, requests_per_second=count / seconds, median_ms=median, p99_ms=p99, total=total, **shares
    )
