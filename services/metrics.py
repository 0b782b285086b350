"""What a service counts, for Prometheus.

All replicas of a machine share one set of files, so any of them tells the sum of all.
"""

import os
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from services.models import Batch

PLACE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
PICTURES = (1, 2, 4, 8, 16, 32, 64)


def prepare() -> None:
    """A place for the files. Those of an earlier service go; those of a replica that died stay, or sums would fall."""
    if PLACE not in os.environ:
        return
    place = Path(os.environ[PLACE])
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
        self.requests = Counter("equipoise_requests", "Requests by what came of them", ["path", "status"], **kept)
        self.refused = Counter("equipoise_refused", "Requests refused, by reason", ["reason"], **kept)
        self.seconds = Histogram(
            "equipoise_request_seconds", "From the head of a request to its answer", ["path"], buckets=SECONDS, **kept
        )
        self.pictures = Counter("equipoise_pictures", "Pictures answered", ["model", "version", "engine"], **kept)
        self.batches = Histogram(
            "equipoise_batch_pictures", "Pictures computed at once", ["model"], buckets=PICTURES, **kept
        )
        self.swaps = Counter("equipoise_swaps", "Changes of the bundles that answer", ["outcome"], **kept)

    def batch(self, model: str, batch: Batch) -> None:
        """One more batch of pictures."""
        self.pictures.labels(model, batch.version.id, batch.version.bundle.engine).inc(len(batch.pictures))
        self.batches.labels(model).observe(len(batch.pictures))

    def told(self) -> bytes:
        """All of it in Prometheus' format, over every process that shares the files."""
        if PLACE not in os.environ:
            return generate_latest(self.registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)
