"""Sums of answered images that a replica reports: exact, by source, within its share of the time, and none twice."""

import asyncio
import dataclasses
import threading
import time

import numpy as np
import pytest
import torch

from equipoise.captures.store import CaptureStore
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import ReferenceUnavailable
from services.monitoring.capture_sampler import CaptureSampler
from services.monitoring.drift_observer import DriftObserver
from services.monitoring.drift_replies import StreamState
from services.monitoring.metrics import Metrics
from services.serving.inference import ComputedBatch
from tests.support.drift_data import CLASSES, render_shapes, score_shapes
from tests.support.local_monitor import LocalMonitor
from tests.support.quick_profile import build_quick_profile, sum_image_statistics
from tests.support.served_batches import build_comparison, build_version

CLASS_NAMES = ["red", "green", "blue", "yellow"]
STREAM = StreamKey("shapes", "v1")


@pytest.fixture(scope="module")
def version():
    return build_version("v1", CLASS_NAMES, build_quick_profile())


@pytest.fixture
def monitor(tmp_path):
    return LocalMonitor(tmp_path / "state")


@pytest.fixture
def observer(monitor):
    return DriftObserver(Metrics(), monitor, 1.0)


def answer_images(version, count, seed=0, sources=None):
    """Return a batch as the model answered it."""
    images, _ = render_shapes(count, seed)
    logits, features = score_shapes(images)
    return ComputedBatch(version, images, logits, features, sources or [None] * count, [None] * count)


def count_observed(row):
    """Return how many images a row counts, and how many of them were observed."""
    layout = build_quick_profile().baseline.layout
    return int(row[layout.slices["all"]].sum()), int(row[layout.slices["cells"]].sum())


def report(observer, **options):
    asyncio.run(observer.send_report(**options))


def observe(observer, batch):
    """Let an observer see a batch, and wait for the passes that follow from it."""
    observer.on_batch("shapes", batch)
    while observer.is_pass_running:
        time.sleep(0.001)


def test_reported_sums_are_those_of_the_images_by_source(observer, monitor, version):
    sources = ["shelf"] * 3 + [None] * 4 + ["door", "shelf"]
    batches = [answer_images(version, 9, 1, sources), answer_images(version, 30, 2), answer_images(version, 5, 3)]
    for batch in batches:
        observe(observer, batch)
    report(observer)
    observer.on_batch("shapes", answer_images(version, 2, 4, ["door", "door"]))
    report(observer)
    every_source = [source for batch in batches for source in batch.sources] + ["door"] * 2
    images = torch.cat([*(batch.images for batch in batches), answer_images(version, 2, 4).images])
    sums = monitor.sum_rows()
    assert sums.keys() == {STREAM, STREAM._replace(source="shelf"), STREAM._replace(source="door")}
    for stream, row in sums.items():
        indices = [index for index, source in enumerate(every_source) if source == stream.source]
        np.testing.assert_allclose(row, sum_image_statistics(images[indices]), rtol=0, atol=100)  # units of 2**-24
    assert [tick.number for report in monitor.reports for tick in report.ticks] == [1, 2]


def test_batches_are_counted_in_the_metrics(observer, version):
    observer.on_batch("shapes", answer_images(version, 3))
    value = observer.metrics.registry.get_sample_value
    labels = {"model": "shapes", "version": "v1"}
    assert value("equipoise_pictures_total", labels | {"engine": "onnx"}) == 3
    observer.on_comparison("shapes", build_comparison(version, [[1.0, 0, 0, 0]], version, [[1.0, 0, 0, 0]]))
    compared = labels | {"other": "v1", "label": "red", "outcome": "same"}
    assert value("equipoise_compared_pictures_total", compared) == 1


def test_images_are_observed_32_at_a_time(observer, version):
    observe(observer, answer_images(version, 31))
    assert not observer.stream_sums
    observe(observer, answer_images(version, 1, 1))
    assert count_observed(observer.stream_sums[STREAM]) == (32, 32)
    observe(observer, answer_images(version, 31))
    assert count_observed(observer.stream_sums[STREAM]) == (32, 32)


def test_images_that_come_during_a_pass_wait_for_it_and_beyond_a_pass_are_only_counted(observer, monitor, version):
    gate = threading.Event()
    observer.executor.submit(gate.wait)
    for count in (32, 32, 32, 8):
        observer.on_batch("shapes", answer_images(version, count))
    assert not observer.stream_sums
    report(observer)  # 32 of them are in the pass that waits
    gate.set()
    while observer.is_pass_running:
        time.sleep(0.001)
    report(observer)
    assert count_observed(monitor.sum_rows()[STREAM]) == (104, 64)


def test_pass_that_fails_does_not_stop_the_next(observer, version):
    broken = answer_images(version, 32)
    observe(observer, dataclasses.replace(broken, logits=broken.logits[:3]))
    observe(observer, answer_images(version, 32))
    assert count_observed(observer.stream_sums[STREAM]) == (32, 32)


def test_large_images_are_observed_when_they_take_400_kibibytes(observer, version):
    for count in range(1, 8):
        assert not observer.stream_sums
        large = torch.full((1, 1, 256, 256), 30 * count, dtype=torch.uint8)
        batch = ComputedBatch(version, large, torch.zeros(1, CLASSES), torch.zeros(1, 9), [None], [None])
        observe(observer, batch)
    assert count_observed(observer.stream_sums[STREAM]) == (7, 7)


def test_images_beyond_the_share_of_the_time_are_counted_but_not_observed(observer, monitor, version):
    observer.credit_seconds = -1.0
    observer.on_batch("shapes", answer_images(version, 40, sources=[None] * 30 + ["shelf"] * 10))
    report(observer)
    observer.on_batch("shapes", answer_images(version, 2))
    report(observer)
    counts = {stream.source: count_observed(row) for stream, row in monitor.sum_rows().items()}
    assert counts == {None: (32, 0), "shelf": (10, 0)}
    report(observer)
    assert not monitor.reports[-1].ticks


@pytest.mark.parametrize(("credit", "is_observed"), [(-9.95, True), (-10.05, False)])
def test_observer_gains_one_percent_of_the_time(observer, version, credit, is_observed):
    observer.credit_seconds, observer.credit_updated_at = credit, time.monotonic() - 1000.0
    observe(observer, answer_images(version, 32))
    assert bool(observer.stream_sums) == is_observed
    assert observer.credit_seconds == pytest.approx(credit + 10, abs=0.04)
    assert time.monotonic() - observer.credit_updated_at < 60


def test_new_or_idle_observer_has_saved_a_tenth_of_a_second(observer, version):
    assert observer.credit_seconds == 0.1
    observer.credit_updated_at -= 1e6
    observe(observer, answer_images(version, 1))
    assert observer.credit_seconds == 0.1


def test_observing_costs_its_time(observer, version):
    batch = answer_images(version, 32)
    started_at = time.process_time()
    observe(observer, batch)
    assert 0 < 0.1 - observer.credit_seconds < time.process_time() - started_at
    observer.credit_seconds = 0.0
    observe(observer, answer_images(version, 1))
    assert observer.pending_examples  # a little time has passed


def test_version_without_a_reference_is_not_observed(observer, monitor):
    reason = ReferenceUnavailable("the bundle has no reference")
    version = build_version("v1", CLASS_NAMES, reason)
    observer.on_batch("shapes", answer_images(version, 40))
    report(observer)
    assert observer.references == {STREAM: reason}
    assert not monitor.reports[0].ticks and not observer.skipped_examples


def test_reference_is_registered_once_before_its_first_tick(observer, monitor, version):
    for _ in range(3):
        observer.on_batch("shapes", answer_images(version, 1))
        report(observer)
    assert monitor.num_registered == 1 and monitor.monitor.profiles.keys() == {STREAM}
    registered = monitor.monitor.profiles[STREAM]
    assert registered.class_names == build_quick_profile().class_names
    assert len(monitor.reports) == 3


def test_time_fraction_is_how_much_credit_a_second_gives(monitor, version):
    for time_fraction, is_observed in ((0.01, False), (1.0, True)):
        observer = DriftObserver(Metrics(), monitor, 1.0, time_fraction=time_fraction)
        observer.credit_seconds, observer.credit_updated_at = -0.9, time.monotonic() - 1.0
        observer.on_batch("shapes", answer_images(version, 32))
        assert (not observer.skipped_examples) == is_observed


def test_clock_of_a_report_is_the_last_full_tick(monitor):
    for tick_seconds in (0.5, 60.0):
        observer = DriftObserver(Metrics(), monitor, tick_seconds)
        before = time.time()
        report(observer, leaving=tick_seconds == 60.0)
        clock = monitor.reports[-1].clock / 1000
        assert clock % tick_seconds == 0 and before - tick_seconds < clock <= time.time()
    assert [sent.leaves for sent in monitor.reports] == [False, True]
    assert len({sent.replica for sent in monitor.reports}) == 2


def test_drift_of_a_stream_is_shown_in_the_metrics_and_captured(monitor, version, tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    sampler = CaptureSampler(store)
    observer = DriftObserver(Metrics(), monitor, 1.0, sampler)
    other = StreamState(drift=True, alarm_seconds=9.0, images=7, threshold=9.0, charts={}, lost=0)
    for expected, states in (("usual", {STREAM._replace(version="v2"): other}), ("drift", {STREAM: other})):
        monitor.states = states
        report(observer)
        observe(observer, answer_images(version, 32))
        sampler.executor.submit(int).result()
        assert {capture.pool for capture in store.list_captures()} >= {expected}
        assert len(store.list_captures(pool="drift")) == (8 if expected == "drift" else 0)
    assert observer.metrics.registry.get_sample_value("equipoise_drift", {"model": "shapes", "version": "v1"}) == 1
    sampler.executor.shutdown()


def test_captured_scores_are_calibrated(monitor, tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    sampler = CaptureSampler(store)
    observer = DriftObserver(Metrics(), monitor, 1.0, sampler)
    batch = answer_images(build_version("v1", CLASS_NAMES, build_quick_profile(temperature=4.0)), 1)
    observer.on_batch("shapes", batch)
    report(observer)
    sampler.executor.shutdown()
    (capture,) = store.list_captures()
    expected = torch.softmax(batch.logits[0] / 4.0, 0).tolist()
    assert [*capture.scores.values()] == pytest.approx(expected, rel=1e-5)
