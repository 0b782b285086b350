"""Prometheus metrics of the service.

All replicas of a machine share one set of metric files, so each of them reports the sum over all.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.proportions import wilson_interval
from services.http.message_types import ComparisonReply, Proportion
from services.monitoring.drift_replies import StreamState
from services.serving.inference import AnsweredBatch, ComparedOutputs

MULTIPROC_DIR_ENV = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it on import
LATENCY_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


def prepare_metrics_folder() -> None:
    """Create the folder of metric files, and delete the files of an earlier service.

    Files of a replica that died stay while other replicas run; otherwise the sums would decrease.
    """
    if MULTIPROC_DIR_ENV not in os.environ:
        return
    folder = Path(os.environ[MULTIPROC_DIR_ENV])
    folder.mkdir(parents=True, exist_ok=True)
    files = [path for path in folder.glob("*.db") if path.stem.rpartition("_")[2].isdigit()]
    if not any(Path(f"/proc/{path.stem.rpartition('_')[2]}").exists() for path in files):
        for path in files:
            path.unlink(missing_ok=True)


class Metrics:
    """Counters, gauges and histograms of the service, created once per process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.series: dict[tuple[Any, tuple[object, ...]], Any] = {}
        """series of frequent metrics, by metric and labels"""
        options: dict[str, Any] = {"registry": self.registry}
        self.requests_by_status = Counter(
            "equipoise_requests", "Requests by path and status", ["path", "status"], **options
        )
        self.rejected_requests = Counter("equipoise_refused", "Rejected requests by reason", ["reason"], **options)
        self.request_seconds = Histogram(
            "equipoise_request_seconds",
            "Seconds from the header of a request to its answer",
            ["path"],
            buckets=LATENCY_BUCKETS_SECONDS,
            **options,
        )
        self.answered_images = Counter(
            "equipoise_pictures", "Images answered", ["model", "version", "engine"], **options
        )
        self.batch_sizes = Histogram(
            "equipoise_batch_pictures", "Images per computed batch", ["model"], buckets=BATCH_SIZE_BUCKETS, **options
        )
        pair = ["model", "version", "other"]
        self.compared_images = Counter(
            "equipoise_compared_pictures",
            "Images that two versions answered, by the label of the current version",
            [*pair, "label", "outcome"],
            **options,
        )
        self.score_distance = Counter(
            "equipoise_compared_distance",
            "Total variation distance of the scores, summed over those images",
            pair,
            **options,
        )
        options["multiprocess_mode"] = "mostrecent"
        names = ["model", "version"]
        self.drift_alarm = Gauge("equipoise_drift", "1 while the drift monitor has an alarm, else 0", names, **options)
        self.drift_images = Gauge(
            "equipoise_drift_images", "Images answered by the monitored version", names, **options
        )
        self.chart_heights = Gauge(
            "equipoise_drift_chart",
            "Value of a drift chart: the logarithm of how rare it is without drift",
            [*names, "chart"],
            **options,
        )
        self.alarm_threshold = Gauge(
            "equipoise_drift_threshold", "Alarm threshold of the drift charts", names, **options
        )
        self.condition_shares = Gauge(
            "equipoise_condition_share",
            "Share of a known condition in the latest images, where several conditions are known",
            [*names, "condition"],
            **options,
        )
        self.lost_ticks = Gauge("equipoise_drift_lost_ticks", "Reports that never reached the drift monitor", **options)
        del options["multiprocess_mode"]
        self.bundle_swaps = Counter("equipoise_swaps", "Bundle swaps by outcome", ["outcome"], **options)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request of a route with the status and the time of its answer."""
        self.find_series(self.requests_by_status, path, status).inc()
        self.find_series(self.request_seconds, path).observe(seconds)

    def on_batch(self, model: str, batch: AnsweredBatch) -> None:
        """Count a computed batch of examples."""
        count = len(batch.sources)
        self.find_series(self.answered_images, model, batch.version.id, batch.version.bundle.engine_name).inc(count)
        self.find_series(self.batch_sizes, model).observe(count)

    def find_series(self, metric: Any, *labels: object) -> Any:
        """Return the series of a metric with these labels; `labels` itself takes longer than counting does."""
        series = self.series.get((metric, labels))
        if series is None:
            series = self.series[metric, labels] = metric.labels(*labels)
        return series

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Count how far two versions agree on the same images."""
        names = (model, outputs.current.version.id, outputs.other.version.id)
        for label, other in zip(outputs.current.labels, outputs.other.labels, strict=True):
            self.compared_images.labels(*names, label, "same" if label == other else "differs").inc()
        self.score_distance.labels(*names).inc(float(np.abs(outputs.current.scores - outputs.other.scores).sum()) / 2)

    def set_drift_gauges(self, stream_states: dict[StreamKey, StreamState]) -> None:
        """Set the drift gauges from the monitor's state of each stream."""
        for stream, state in stream_states.items():
            names = (stream.model, stream.version)
            self.drift_alarm.labels(*names).set(state.drift)
            self.drift_images.labels(*names).set(state.images)
            self.alarm_threshold.labels(*names).set(state.threshold)
            self.lost_ticks.set(state.lost)
            for chart, height in state.charts.items():
                self.chart_heights.labels(*names, chart).set(height)
            for condition, share in state.conditions.items():
                self.condition_shares.labels(*names, condition).set(share)

    def summarize_comparison(self, model: str, version: str, other: str) -> ComparisonReply:
        """Return the number of compared images, and how far two versions agree on them."""
        names = {"model": model, "version": version, "other": other}
        samples = [
            sample
            for family in self._shared_registry().collect()
            if family.name.startswith("equipoise_compared")
            for sample in family.samples
            if sample.name.endswith("_total") and names.items() <= sample.labels.items()
        ]
        counts = [sample for sample in samples if "outcome" in sample.labels]
        num_images = round(sum(sample.value for sample in counts))
        if not num_images:
            return ComparisonReply(**names, pictures=0, same=None, distance=None, differs={})
        differs = {
            count.labels["label"]: round(count.value) for count in counts if count.labels["outcome"] == "differs"
        }
        distance = sum(sample.value for sample in samples if "outcome" not in sample.labels)
        return ComparisonReply(
            **names,
            pictures=num_images,
            same=wilson_proportion(num_images - sum(differs.values()), num_images),
            distance=round(distance / num_images, 6),
            differs=dict(sorted(differs.items(), key=lambda item: -item[1])),
        )

    def render_prometheus(self) -> bytes:
        """Return all metrics in Prometheus' text format, summed over the processes that share the files."""
        return generate_latest(self._shared_registry())

    def collect_families(self) -> list[Metric]:
        """Return all metrics, summed over the processes that share the files."""
        return [*self._shared_registry().collect()]

    def _shared_registry(self) -> CollectorRegistry:
        if MULTIPROC_DIR_ENV not in os.environ:
            return self.registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared


def wilson_proportion(count: int, total: int) -> Proportion:
    """Return a proportion with its 95 % Wilson interval."""
    low, high = wilson_interval(count / total, total)
    return Proportion(value=round(count / total, 6), low=round(low, 6), high=round(high, 6))
