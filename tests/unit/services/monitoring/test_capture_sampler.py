"""Images that are offered for labelling: how many of a batch, with which scores, and none while the store is slow."""

import threading
import time
from collections import Counter

import numpy as np
import pytest
from scipy.special import softmax

from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.drift.monitor.stream_key import StreamKey
from services.monitoring.capture_sampler import CaptureSampler
from tests.support.captures import CLASSES, decode_png

STREAM = StreamKey("pets", "v1")


class SlowStore(CaptureStore):
    """Store that keeps the requests which it is offered in a list, and waits before each until a gate is opened."""

    def __init__(self, location, is_open=True):
        super().__init__(location)
        self.offered, self.gate = [], threading.Event()
        if is_open:
            self.gate.set()

    def offer(self, request):
        self.gate.wait()
        self.offered.append(request)
        if request.source == "damaged":
            raise OSError("this request cannot be kept")
        return True


def build_batch(count, channels=3, seed=0):
    """Return images, of which each has its index as its first pixel, and logits."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, channels, 4, 4)).astype(np.uint8)
    images[:, 0, 0, 0] = range(count)
    return images, rng.normal(0, 3, (count, len(CLASSES))).astype(np.float32)


def offer_batch(sampler, count, is_drifting=False, channels=3, sources=None, alarm_seconds=1000.0):
    images, logits = build_batch(count, channels)
    sampler.offer_samples(
        STREAM,
        alarm_seconds if is_drifting else None,
        CLASSES,
        images,
        logits,
        sources or [None] * count,
        [None] * count,
    )
    return images, logits


@pytest.fixture
def store(tmp_path):
    return SlowStore(str(tmp_path))


@pytest.fixture
def sampler(store):
    capture_sampler = CaptureSampler(store, usual_seconds=0.0)
    yield capture_sampler
    store.gate.set()
    capture_sampler.executor.shutdown()


@pytest.mark.parametrize(
    ("is_drifting", "count", "expected"),
    [(False, 0, 0), (False, 1, 1), (False, 32, 1), (True, 1, 1), (True, 7, 7), (True, 8, 8), (True, 32, 8)],
)
def test_few_images_of_a_batch_are_offered_and_more_during_drift(sampler, store, is_drifting, count, expected):
    offer_batch(sampler, count, is_drifting)
    sampler.executor.shutdown()
    assert len(store.offered) == expected
    assert len({request.picture[0, 0, 0] for request in store.offered}) == expected
    assert {request.pool for request in store.offered} <= {"drift" if is_drifting else "usual"}


def test_every_image_of_a_batch_is_offered_sometimes(sampler, store):
    for _ in range(300):
        offer_batch(sampler, 4)
        sampler.executor.submit(int).result()
    counts = Counter(int(request.picture[0, 0, 0]) for request in store.offered)
    assert counts.keys() == {0, 1, 2, 3} and min(counts.values()) > 30  # each 75 on average


def test_offered_request_is_the_answer_that_the_model_gave(sampler, store):
    images, logits = offer_batch(sampler, 8, is_drifting=True, sources=[f"shelf {index}" for index in range(8)])
    expected = images.copy()
    images[:] = 0  # the memory of a batch is used again
    sampler.executor.shutdown()
    for request in store.offered:
        index = int(request.picture[0, 0, 0])
        np.testing.assert_array_equal(request.picture, expected[index])
        assert (request.model, request.version, request.source) == ("pets", "v1", f"shelf {index}")
        assert list(request.scores) == CLASSES and request.label == CLASSES[int(np.argmax(logits[index]))]
        np.testing.assert_allclose([*request.scores.values()], softmax(logits[index].astype(np.float64)), rtol=1e-12)


def test_sent_images_are_offered_with_their_own_pixels(sampler, store):
    images, logits = build_batch(8)
    encoded = [bytes([index]) for index in range(8)]
    sampler.offer_samples(STREAM, 1000.0, CLASSES, images, logits, [None] * 8, encoded)
    sampler.executor.shutdown()
    assert {int(request.picture[0, 0, 0]) for request in store.offered} == set(range(8))
    assert all(request.encoded == bytes([int(request.picture[0, 0, 0])]) for request in store.offered)


def test_sample_reaches_a_store_on_disk(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    sampler = CaptureSampler(store, usual_seconds=0.0)
    images, _ = offer_batch(sampler, 1)
    sampler.executor.shutdown()
    (capture,) = store.list_captures()
    np.testing.assert_array_equal(decode_png(store.read_png(capture.id)).transpose(2, 0, 1), images[0])


@pytest.mark.parametrize(("channels", "expected"), [(1, 1), (3, 1), (2, 0), (4, 0)])
def test_only_grey_and_colour_images_are_offered(sampler, store, channels, expected):
    offer_batch(sampler, 5, channels=channels)
    sampler.executor.shutdown()
    assert len(store.offered) == expected


def test_up_to_64_offers_wait_for_a_slow_store(tmp_path):
    store = SlowStore(str(tmp_path), is_open=False)
    sampler = CaptureSampler(store, usual_seconds=0.0)
    for _ in range(10):
        offer_batch(sampler, 8, is_drifting=True)
    store.gate.set()
    sampler.executor.submit(int).result()
    assert len(store.offered) == 64
    offer_batch(sampler, 8, is_drifting=True)
    sampler.executor.shutdown()
    assert len(store.offered) == 72


def test_requests_since_an_alarm_are_sampled_uniformly_beside_those_for_labelling(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    sampler = CaptureSampler(store, usual_seconds=0.0)
    offer_batch(sampler, 32)
    sampler.executor.submit(int).result()
    assert not list(tmp_path.glob("kept/traffic-*"))
    now = time.time()
    for _ in range(3):
        offer_batch(sampler, 20, is_drifting=True, alarm_seconds=now)
        sampler.executor.submit(int).result()
    traffic = TrafficSample(store.location, "v1")
    assert len(traffic.read_pngs(now - 1)) == 60
    assert len(store.list_captures(pool="drift")) == 24
    later = now + 3600
    offer_batch(sampler, 5, is_drifting=True, alarm_seconds=later)
    sampler.executor.shutdown()
    assert len(traffic.read_pngs(0)) == 5  # those of the earlier alarm are forgotten


def test_requests_without_an_alarm_have_a_uniform_sample_of_their_own(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    sampler = CaptureSampler(store, usual_seconds=0.0)
    for number in range(6):
        offer_batch(sampler, 20, is_drifting=number == 3, alarm_seconds=time.time())
        sampler.executor.submit(int).result()
    sampler.executor.shutdown()
    usual = TrafficSample(store.location, "v1", since_alarm=False)
    assert len(usual.read_pngs()) == 5  # one of each batch
    assert len(TrafficSample(store.location, "v1").read_pngs()) == 20
    assert {metadata.pool for metadata in usual.store.list_captures(limit=None)} == {"usual"}


def test_requests_that_cannot_be_kept_leave_room_for_others(sampler, store):
    for _ in range(40):
        offer_batch(sampler, 1, sources=["damaged"])
        sampler.executor.submit(int).result()
    offer_batch(sampler, 1)
    sampler.executor.shutdown()
    assert len(store.offered) == 41


def test_usual_requests_are_offered_at_most_twice_a_second_and_those_since_an_alarm_always(store, monkeypatch):
    sampler, now = CaptureSampler(store), [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for seconds, is_drifting in ((0.0, False), (0.4, False), (0.2, False), (0.0, False), (0.0, True), (0.5, False)):
        now[0] += seconds
        offer_batch(sampler, 1, is_drifting)
    sampler.executor.shutdown()
    assert [request.pool for request in store.offered] == ["usual", "usual", "drift", "usual"]
