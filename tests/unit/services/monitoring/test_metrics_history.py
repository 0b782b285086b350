"""Snapshots of the metrics: what they sum, how often they are stored, and how long they are kept."""

import asyncio
import time

import pytest

from dashboards.metrics_snapshot import MetricsSnapshot
from services.monitoring.metrics import MULTIPROC_DIR_ENV, Metrics
from services.monitoring.metrics_history import MetricsHistory
from tests.support.served_batches import build_batch, build_version
from tests.support.stepped_loop import run_pending, run_stepped, wait_for


@pytest.fixture
def metrics(monkeypatch):
    monkeypatch.delenv(MULTIPROC_DIR_ENV, raising=False)
    return Metrics()


def test_snapshot_of_new_metrics_is_empty(metrics):
    snapshot = MetricsHistory(metrics).take_snapshot()
    assert abs(snapshot.time - time.time()) < 60
    assert snapshot == MetricsSnapshot(time=snapshot.time)


def test_snapshot_counts_requests_for_predictions_only(metrics):
    paths = ["/predict", "/models/{name}/predict", "/v2/models/{name}/infer", "/metrics", "/", "other"]
    for path in paths:
        metrics.requests_by_status.labels(path, 200).inc(10)
        metrics.request_seconds.labels(path).observe(0.03)
    metrics.requests_by_status.labels("/predict", 429).inc(2)
    metrics.request_seconds.labels("/predict").observe(7)
    snapshot = MetricsHistory(metrics).take_snapshot()
    assert snapshot.requests == {"200": 30.0, "429": 2.0}
    assert {label: snapshot.seconds[label] for label in ("0.02", "0.05", "5.0", "10.0", "+Inf")} == {
        "0.02": 0.0,
        "0.05": 3.0,
        "5.0": 3.0,
        "10.0": 4.0,
        "+Inf": 4.0,
    }


def test_snapshot_counts_rejections_and_sums_images_over_engines_and_models(metrics):
    metrics.rejected_requests.labels("busy").inc(3)
    for model, version, engine, count in (
        ("pets", "v1", "onnx", 3),
        ("pets", "v1", "torch", 2),
        ("pets", "v2", "onnx", 1),
        ("cars", "v1", "onnx", 8),
    ):
        metrics.on_batch(model, build_batch(build_version(version, engine=engine), count))
    snapshot = MetricsHistory(metrics).take_snapshot()
    assert snapshot.refused == {"busy": 3.0}
    assert snapshot.pictures == {"pets v1": 5.0, "pets v2": 1.0, "cars v1": 8.0}
    assert {label: snapshot.batches[label] for label in ("1.0", "2.0", "4.0", "8.0", "+Inf")} == {
        "1.0": 1.0,
        "2.0": 2.0,
        "4.0": 3.0,
        "8.0": 4.0,
        "+Inf": 4.0,
    }
    assert not snapshot.requests and not snapshot.seconds


def test_recent_snapshots_end_with_one_of_now_that_is_not_stored(metrics):
    history, now = MetricsHistory(metrics), time.time()
    stored = [MetricsSnapshot(time=now - seconds) for seconds in (600, 5, 1.05, 0)]
    history.snapshots.extend(stored)
    metrics.rejected_requests.labels("busy").inc()
    *earlier, last = history.recent_snapshots()
    assert earlier == stored[:-1]  # the newest is less than a second older than the last
    assert last.time >= now and last.refused == {"busy": 1.0}
    assert [*history.snapshots] == stored


def test_snapshots_of_twenty_minutes_are_kept(metrics):
    history = MetricsHistory(metrics)
    history.snapshots.extend(MetricsSnapshot(time=5.0 * index) for index in range(300))
    assert len(history.snapshots) * 5 == 20 * 60
    assert history.snapshots[-1].time == 5.0 * 299


def test_snapshot_is_stored_every_five_seconds(metrics):
    history = MetricsHistory(metrics)

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(history.collect_snapshots())
        for count in (1, 2, 3):
            await wait_for(lambda count=count: len(history.snapshots) == count)
            await run_pending()
            await loop.advance(4.9)
            assert len(history.snapshots) == count
            metrics.rejected_requests.labels("busy").inc()
            await loop.advance(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_stepped(main())
    assert [snapshot.refused.get("busy", 0) for snapshot in history.snapshots][:3] == [0, 1, 2]
