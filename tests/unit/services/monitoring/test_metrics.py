"""Metrics of a replica: what is counted, how two versions are compared, and sums over processes."""

import os
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families
from scipy.stats import binomtest

from equipoise.drift.monitor.stream_key import StreamKey
from services.monitoring.drift_replies import StreamState
from services.monitoring.metrics import MULTIPROC_DIR_ENV, Metrics, prepare_metrics_folder, wilson_proportion
from tests.support.served_batches import build_batch, build_comparison, build_version

COUNT_SCRIPT = """
from prometheus_client import Counter
Counter("equipoise_requests", "by another process", ["path", "status"]).labels("/predict", 200).inc(3)
"""


@pytest.fixture
def metrics(monkeypatch):
    monkeypatch.delenv(MULTIPROC_DIR_ENV, raising=False)
    return Metrics()


def read_samples(metrics, name, *labels):
    """Return the values of a metric as Prometheus reads them, by the values of all its labels."""
    families = text_string_to_metric_families(metrics.render_prometheus().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    assert all(sample.labels.keys() == {*labels} for sample in samples)
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in samples}


def test_batches_are_counted_by_model_version_and_engine(metrics):
    for version, engine, count in (("v1", "onnx", 3), ("v1", "onnx", 20), ("v2", "torch", 1)):
        metrics.on_batch("pets", build_batch(build_version(version, engine=engine), count))
    counts = read_samples(metrics, "equipoise_pictures_total", "model", "version", "engine")
    assert counts == {("pets", "v1", "onnx"): 23.0, ("pets", "v2", "torch"): 1.0}
    assert read_samples(metrics, "equipoise_batch_pictures_sum", "model") == {("pets",): 24.0}
    assert read_samples(metrics, "equipoise_batch_pictures_count", "model") == {("pets",): 3.0}


def test_swaps_of_bundles_are_counted_by_outcome(metrics):
    metrics.bundle_swaps.labels("swapped").inc()
    assert read_samples(metrics, "equipoise_swaps_total", "outcome") == {("swapped",): 1.0}


def test_buckets_of_batch_sizes_are_powers_of_two(metrics):
    for count in range(1, 66):
        metrics.on_batch("pets", build_batch(build_version(), count))
    buckets = read_samples(metrics, "equipoise_batch_pictures_bucket", "model", "le")
    assert {bound: value for (_, bound), value in buckets.items()} == {
        f"{2**power}.0": 2**power for power in range(7)
    } | {"+Inf": 65}


def test_buckets_of_seconds_are_a_1_2_5_series_from_a_millisecond_to_ten_seconds(metrics):
    metrics.request_seconds.labels("/predict").observe(0.3)
    buckets = read_samples(metrics, "equipoise_request_seconds_bucket", "path", "le")
    series = [factor * 10.0**power for power in range(-3, 1) for factor in (1, 2, 5)]
    assert sorted(float(bound) for _, bound in buckets) == pytest.approx([*series, 10.0, float("inf")])
    assert min(float(bound) for (_, bound), value in buckets.items() if value == 1) == 0.5


def test_compared_versions_are_summed_up(metrics):
    v1, v2 = build_version("v1", ("ant", "bee", "cat")), build_version("v2", ("ant", "bee", "cat"))
    scores = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0]]
    other_scores = [[0.6, 0.2, 0.2], [0.5, 0.4, 0.1], [0.4, 0.3, 0.3], [0.6, 0.1, 0.3], [0.9, 0.1, 0.0]]
    for half in (slice(0, 2), slice(2, 5)):
        metrics.on_comparison("pets", build_comparison(v1, scores[half], v2, other_scores[half]))
    pairs = zip(scores, other_scores, strict=True)
    distances = [sum(max(p - q, 0) for p, q in zip(*pair, strict=True)) for pair in pairs]
    summary = metrics.summarize_comparison("pets", "v1", "v2")
    assert summary.pictures == 5
    assert summary.distance == pytest.approx(sum(distances) / 5, abs=1e-6)
    assert list(summary.differs.items()) == [("cat", 2), ("bee", 1)]
    interval = binomtest(2, 5).proportion_ci(method="wilson")
    assert vars(summary.same) == pytest.approx({"value": 0.4, "low": interval.low, "high": interval.high}, abs=1e-6)


def test_comparison_counts_only_its_model_and_versions(metrics):
    v1, v2, v3 = (build_version(version) for version in ("v1", "v2", "v3"))
    ant, bee = [[1.0, 0.0]], [[0.0, 1.0]]
    metrics.on_comparison("pets", build_comparison(v1, ant, v2, ant))
    for model, current, other in (("cars", v1, v2), ("pets", v1, v3), ("pets", v3, v2)):
        metrics.on_comparison(model, build_comparison(current, ant, other, bee))
    summary = metrics.summarize_comparison("pets", "v1", "v2")
    assert (summary.pictures, summary.distance, summary.differs) == (1, 0.0, {})
    assert metrics.summarize_comparison("pets", "v1", "v3").distance == 1.0
    nothing = metrics.summarize_comparison("pets", "v2", "v1")
    assert (nothing.pictures, nothing.same, nothing.distance, nothing.differs) == (0, None, None, {})
    assert (nothing.model, nothing.version, nothing.other) == ("pets", "v2", "v1")


def test_distance_is_rounded_to_a_millionth(metrics):
    v1, v2 = build_version("v1"), build_version("v2")
    metrics.on_comparison("pets", build_comparison(v1, [[1.0, 0.0]], v2, [[0.0, 1.0]]))
    for _ in range(2):
        metrics.on_comparison("pets", build_comparison(v1, [[1.0, 0.0]], v2, [[1.0, 0.0]]))
    assert metrics.summarize_comparison("pets", "v1", "v2").distance == 0.333333


@pytest.mark.parametrize(("count", "total"), [(0, 7), (7, 7), (1, 3), (995, 1000)])
def test_proportion_has_the_wilson_interval_of_scipy(count, total):
    interval = binomtest(count, total).proportion_ci(method="wilson")
    expected = {"value": count / total, "low": interval.low, "high": interval.high}
    assert vars(wilson_proportion(count, total)) == {name: round(value, 6) for name, value in expected.items()}


def test_drift_gauges_show_the_latest_state_of_each_stream(metrics):
    key = StreamKey("pets", "v1")
    for drift, images in ((False, 10), (True, 20)):
        state = StreamState(drift=drift, images=images, threshold=9.5, charts={"a": 1.5, "b": images}, lost=2)
        metrics.set_drift_gauges({key: state, StreamKey("cars", "v2"): state})
    for name, value in (("equipoise_drift", 1), ("equipoise_drift_images", 20), ("equipoise_drift_threshold", 9.5)):
        gauges = read_samples(metrics, name, "model", "version")
        assert gauges == {("pets", "v1"): value, ("cars", "v2"): value}
    assert read_samples(metrics, "equipoise_drift_chart", "model", "version", "chart") == {
        (*model, chart): value
        for model in (("pets", "v1"), ("cars", "v2"))
        for chart, value in (("a", 1.5), ("b", 20.0))
    }
    assert read_samples(metrics, "equipoise_drift_lost_ticks") == {(): 2.0}


def test_shares_of_known_conditions_are_gauges(metrics):
    for share in (0.25, 0.75):
        conditions = {"as published": 1 - share, "warmer, 4,400 K": share}
        state = StreamState(drift=False, images=10, threshold=9.5, charts={}, conditions=conditions, lost=0)
        metrics.set_drift_gauges({StreamKey("pets", "v1"): state})
    assert read_samples(metrics, "equipoise_condition_share", "model", "version", "condition") == {
        ("pets", "v1", "as published"): 0.25,
        ("pets", "v1", "warmer, 4,400 K"): 0.75,
    }


def test_one_known_condition_has_no_gauge(metrics):
    state = StreamState(drift=False, images=10, threshold=9.5, charts={}, lost=0)
    metrics.set_drift_gauges({StreamKey("pets", "v1"): state})
    assert read_samples(metrics, "equipoise_condition_share", "model", "version", "condition") == {}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "new" / "metrics"
    monkeypatch.setenv(MULTIPROC_DIR_ENV, str(path))
    prepare_metrics_folder()
    return path


def count_in_other_process():
    """Count three requests in another process, and return its id; it has ended."""
    with subprocess.Popen([sys.executable, "-c", COUNT_SCRIPT]) as process:
        assert process.wait() == 0
    return process.pid


def test_counts_of_ended_processes_are_summed(folder):
    count_in_other_process()
    count_in_other_process()
    assert read_samples(Metrics(), "equipoise_requests_total", "path", "status") == {("/predict", "200"): 6.0}
    families = {family.name: family for family in Metrics().collect_families()}
    assert [sample.value for sample in families["equipoise_requests"].samples] == [6.0]


def test_folder_is_emptied_unless_a_process_that_wrote_to_it_runs(folder):
    ended = count_in_other_process()
    other_files = [folder / name for name in ("notes.db", "counter_x.db", f"counter_{ended}.txt")]
    for path in other_files:
        path.touch()
    running = folder / f"gauge_all_{os.getpid()}.db"
    running.touch()
    prepare_metrics_folder()
    assert {*folder.iterdir()} == {*other_files, running, folder / f"counter_{ended}.db"}
    running.unlink()
    prepare_metrics_folder()
    assert {*folder.iterdir()} == {*other_files}


def test_nothing_is_prepared_without_a_folder(metrics, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prepare_metrics_folder()
    assert [*tmp_path.iterdir()] == []
    metrics.requests_by_status.labels("/predict", 200).inc()
    assert read_samples(metrics, "equipoise_requests_total", "path", "status") == {("/predict", "200"): 1.0}
