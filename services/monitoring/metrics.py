"""What a service counts, for Prometheus.

All replicas of a machine share one set of files, so any of them tells the sum of all.
"""

import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from scipy.stats import binomtest

from services.serving.models import ComparedOutputs, ComputedBatch

MULTIPROC_DIR_ENV = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
LATENCY_BUCKETS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


def prepare_metrics_folder() -> None:
    """A place for the files. Those of an earlier service go; those of a replica that died stay, or sums would fall."""
    if MULTIPROC_DIR_ENV not in os.environ:
        return
    place = Path(os.environ[MULTIPROC_DIR_ENV])
    place.mkdir(parents=True, exist_ok=True)
    files = [path for path in place.glob("*.db") if path.stem.rpartition("_")[2].isdigit()]
    if not any(Path(f"/proc/{path.stem.rpartition('_')[2]}").exists() for path in files):
        for path in files:
            path.unlink(missing_ok=True)


class Metrics:
    """Counters, made once a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        kept: dict[str, Any] = {"registry": self.registry}
        self.requests_by_status = Counter(
            "equipoise_requests", "Requests by what came of them", ["path", "status"], **kept
        )
        self.rejected_requests = Counter("equipoise_refused", "Requests refused, by reason", ["reason"], **kept)
        self.request_seconds = Histogram(
            "equipoise_request_seconds",
            "From the head of a request to its answer",
            ["path"],
            buckets=LATENCY_BUCKETS_SECONDS,
            **kept,
        )
        self.answered_images = Counter(
            "equipoise_pictures", "Pictures answered", ["model", "version", "engine"], **kept
        )
        self.batch_sizes = Histogram(
            "equipoise_batch_pictures", "Pictures computed at once", ["model"], buckets=BATCH_SIZE_BUCKETS, **kept
        )
        pair = ["model", "version", "other"]
        self.compared_images = Counter(
            "equipoise_compared_pictures",
            "Pictures that two versions answered, by the label of the current one",
            [*pair, "label", "outcome"],
            **kept,
        )
        self.score_distance = Counter(
            "equipoise_compared_distance", "Half the sum of differences of scores, over those pictures", pair, **kept
        )
        kept["multiprocess_mode"] = "mostrecent"
        names = ["model", "version"]
        self.drift_alarm = Gauge("equipoise_drift", "Whether requests drifted, by the monitor", names, **kept)
        self.drift_images = Gauge(
            "equipoise_drift_images", "Pictures answered, of the version that is watched", names, **kept
        )
        self.chart_heights = Gauge(
            "equipoise_drift_chart",
            "How high a chart is, as the logarithm of how rare that is",
            [*names, "chart"],
            **kept,
        )
        self.alarm_threshold = Gauge("equipoise_drift_threshold", "What a chart must reach for an alarm", names, **kept)
        self.lost_ticks = Gauge("equipoise_drift_lost_ticks", "Reports that never reached the monitor", **kept)
        del kept["multiprocess_mode"]
        self.bundle_swaps = Counter("equipoise_swaps", "Changes of the bundles that answer", ["outcome"], **kept)

    def on_batch(self, model: str, batch: ComputedBatch) -> None:
        """One more batch of pictures."""
        self.answered_images.labels(model, batch.version.id, batch.version.bundle.engine_name).inc(len(batch.images))
        self.batch_sizes.labels(model).observe(len(batch.images))

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Two versions answered the same pictures."""
        names = (model, outputs.current.version.id, outputs.other.version.id)
        for label, other in zip(outputs.current.labels, outputs.other.labels, strict=True):
            self.compared_images.labels(*names, label, "same" if label == other else "differs").inc()
        self.score_distance.labels(*names).inc(float((outputs.current.scores - outputs.other.scores).abs().sum()) / 2)

    def set_drift_gauges(self, stream_states: dict[str, dict[str, Any]]) -> None:
        """How the monitor sees each model's requests."""
        for stream, one in stream_states.items():
            names = stream.split("/")
            self.drift_alarm.labels(*names).set(one["drift"])
            self.drift_images.labels(*names).set(one["images"])
            self.alarm_threshold.labels(*names).set(one["threshold"])
            self.lost_ticks.set(one["lost"])
            for chart, height in one["charts"].items():
                self.chart_heights.labels(*names, chart).set(height)

    def summarize_comparison(self, model: str, version: str, other: str) -> dict[str, Any]:
        """How far two versions agree."""
        names = {"model": model, "version": version, "other": other}
        samples = [
            sample
            for family in self._shared_registry().collect()
            if family.name.startswith("equipoise_compared")
            for sample in family.samples
            if sample.name.endswith("_total") and names.items() <= sample.labels.items()
        ]
        counts = [sample for sample in samples if "outcome" in sample.labels]
        pictures = round(sum(sample.value for sample in counts))
        if not pictures:
            return {"pictures": 0, "same": None, "distance": None, "differs": {}}
        differs = {one.labels["label"]: round(one.value) for one in counts if one.labels["outcome"] == "differs"}
        distance = sum(sample.value for sample in samples if "outcome" not in sample.labels)
        return {
            "pictures": pictures,
            "same": wilson_proportion(pictures - sum(differs.values()), pictures),
            "distance": round(distance / pictures, 6),
            "differs": dict(sorted(differs.items(), key=lambda one: -one[1])),
        }

    def render_prometheus(self) -> bytes:
        """All of it in Prometheus' format, over every process that shares the files."""
        return generate_latest(self._shared_registry())

    def collect_families(self) -> list[Metric]:
        """All of it, over every process that shares the files."""
        return [*self._shared_registry().collect()]

    def _shared_registry(self) -> CollectorRegistry:
        if MULTIPROC_DIR_ENV not in os.environ:
            return self.registry
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared


def wilson_proportion(count: int, total: int) -> dict[str, float]:
    """A share with its 95 % interval (Wilson's)."""
    low, high = binomtest(count, total).proportion_ci(0.95, "wilson")
    return {"value": round(count / total, 6), "low": round(float(low), 6), "high": round(float(high), 6)}
