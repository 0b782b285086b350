"""Sampling by many replicas: which requests a capture store keeps, and what it makes of damaged files."""

import io
import json
import tempfile
import threading
import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from scipy.stats import chisquare

from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.captures.capture_id import CaptureNotFound
from equipoise.captures.store import CaptureStore
from equipoise.images.png import encode_png
from tests.support.captures import CLASSES, build_request, decode_png, draw_keys, read_sources
from tests.support.errors import raises_code

STALE_ID, RECENT_ID = "00000000aaaaaaaa", f"{int(time.time()):08x}aaaaaaaa"


def test_capture_is_read_back_with_its_image_and_metadata(tmp_path):
    store, image = CaptureStore(str(tmp_path)), torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8)
    assert store.offer(build_request(0.75, picture=image, source="shelf 3", pool="drift"))
    [capture] = [metadata.to_json() for metadata in store.list_captures()]
    assert abs(capture.pop("at") - time.time()) < 60 and 0 < capture.pop("key") < 1 and len(capture["id"]) == 16
    decoded = decode_png(store.read_png(capture.pop("id")))
    assert np.array_equal(decoded.transpose(2, 0, 1), image)
    assert capture == {
        "model": "m",
        "version": "v1",
        "label": "ant",
        "score": 0.75,
        "scores": {"ant": 0.75, "bee": 0.25, "cat": 0.0},
        "source": "shelf 3",
        "pool": "drift",
        "label_given": None,
    }
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".png"]


def test_grey_image_is_read_back_as_grey(tmp_path):
    store, request = CaptureStore(str(tmp_path)), build_request(side=8, channels=1)
    assert store.offer(request)
    decoded = decode_png(store.read_png(store.list_captures()[0].id))
    assert decoded.shape == (8, 8) and np.array_equal(decoded, request.picture[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"picture": np.zeros((2, 4, 4), np.uint8)}, "1 or 3 channels"),
        ({"picture": np.zeros((4, 4, 4), np.uint8)}, "1 or 3 channels"),
        ({"picture": np.zeros((3, 4), np.uint8)}, r"\(3, 4\)"),
        ({"picture": np.zeros((3, 4, 4))}, "float64"),
        ({"picture": np.zeros((3, 0, 4), np.uint8)}, r"\(3, 0, 4\)"),
        ({"pool": "../x"}, "unknown capture pool"),
        ({"label": "dog"}, "one for its label 'dog'"),
        ({"scores": {"ant": float("nan")}}, "finite"),
    ],
)
def test_invalid_request_is_refused_on_construction(fields, message):
    with pytest.raises(ValueError, match=message):
        build_request(**fields)


def test_every_position_of_a_stream_is_kept_equally_often(tmp_path):
    num_repeats, stream_length, capacity = 60, 100, 10
    counts = Counter()
    for repeat in range(num_repeats):
        store = CaptureStore(str(tmp_path / str(repeat)), 2 * capacity, seed=repeat)
        for position in range(stream_length):
            store.offer(build_request(1.0, source=str(position)))
        assert len(read_sources(store)) == capacity
        counts.update(position // 10 for position in read_sources(store))
    assert sum(counts.values()) == num_repeats * capacity
    # drawn without replacement, counts vary less than a multinomial's, by 1 - capacity/stream_length
    statistic = chisquare([counts[tenth] for tenth in range(10)]).statistic
    assert statistic / (1 - capacity / stream_length) < 27.9  # p = 0.001, 9 degrees of freedom


def test_pool_of_one_keeps_requests_in_proportion_to_their_weights(tmp_path):
    scores, num_repeats = [1.0, 0.75, 0.5, 0.0, 1.0], 300
    counts = Counter()
    for repeat in range(num_repeats):
        store = CaptureStore(str(tmp_path / str(repeat)), 2, seed=repeat)
        for position, score in enumerate(scores):
            store.offer(build_request(score, source=str(position)))
        counts.update(read_sources(store))
    weights = 5 - 4 * np.array(scores)
    assert chisquare([counts[position] for position in range(5)], num_repeats * weights / weights.sum()).pvalue > 0.001


def test_less_certain_prediction_weighs_more():
    assert build_request(1.0).weight == 1
    assert build_request(0.5).weight == 3
    assert build_request(0.0).weight == 5
    assert build_request(1.0000001).weight == 1  # a softmax in float32 can exceed 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1), st.sampled_from(CAPTURE_POOLS)), max_size=40))
def test_three_replicas_keep_what_one_replica_would(offers):
    with tempfile.TemporaryDirectory() as folder:
        replicas = [CaptureStore(folder, 8, seed=seed) for seed in range(3)]
        for replica_index, score, pool in offers:
            replicas[replica_index].offer(build_request(score, pool=pool))
        pools_and_keys = []
        for seed in range(3):
            own_offers = [
                (pool, build_request(score).weight) for replica_index, score, pool in offers if replica_index == seed
            ]
            pools_and_keys += zip(
                [pool for pool, _ in own_offers], draw_keys(seed, [weight for _, weight in own_offers]), strict=True
            )
        for pool in CAPTURE_POOLS:
            largest = sorted((key for key_pool, key in pools_and_keys if key_pool == pool), reverse=True)[:4]
            assert [capture.key for capture in replicas[0].list_captures(pool)] == largest
        assert replicas[0].skipped_files == 0


def test_concurrent_replicas_keep_what_one_replica_would(tmp_path):
    num_replicas, num_offers, capacity = 3, 500, 10
    barrier, errors = threading.Barrier(num_replicas), []

    def fill_store(seed):
        store = CaptureStore(str(tmp_path), 2 * capacity, seed=seed)
        barrier.wait()
        for _ in range(num_offers):
            store.offer(build_request(0.9))
        errors.append(store.last_error)

    threads = [threading.Thread(target=fill_store, args=(seed,)) for seed in range(num_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    all_keys = sorted(
        key for seed in range(num_replicas) for key in draw_keys(seed, [build_request(0.9).weight] * num_offers)
    )
    store = CaptureStore(str(tmp_path))
    assert [capture.key for capture in store.list_captures()] == all_keys[: -capacity - 1 : -1]
    assert (
        errors == [None] * num_replicas and store.skipped_files == 0 and len(list(tmp_path.iterdir())) == 2 * capacity
    )


def count_listings(store):
    """Count from now on how often a store lists its location; return the list that grows by one each time."""
    listings, list_files = [], store._directory.list_files
    store._directory.list_files = lambda: listings.append(1) or list_files()
    return listings


def test_store_that_lists_rarely_keeps_the_same_requests(tmp_path, clock):
    always = CaptureStore(str(tmp_path / "always"), 20, seed=1)
    rarely = CaptureStore(str(tmp_path / "rarely"), 20, seed=1, clock=lambda: clock[0], listing_seconds=5.0)
    listings = count_listings(rarely)
    for position in range(300):
        clock[0] += 0.1
        request = build_request(0.9, source=str(position), pool=CAPTURE_POOLS[position % 2])
        assert always.offer(request) == rarely.offer(request)
        if position % 50 == 0:
            assert read_sources(always) == read_sources(rarely)
    assert read_sources(always) == read_sources(rarely) and len(read_sources(rarely)) == 20
    assert len(list((tmp_path / "rarely").iterdir())) == 40
    assert len(listings) < 25  # ours among them


def test_captures_and_labels_of_others_are_noticed_at_the_next_listing(tmp_path, clock):
    store = CaptureStore(str(tmp_path), 8, seed=1, clock=lambda: clock[0], listing_seconds=5.0)
    for _ in range(4):
        store.offer(build_request(1.0))
    other = CaptureStore(str(tmp_path), 8, seed=2)
    labelled = other.list_captures()[0]
    other.label_capture(labelled.id, "bee", CLASSES)
    for _ in range(20):
        store.offer(build_request(1.0))  # makes room by what it knows, and cannot remove the labelled one
    assert labelled.id in {capture.id for capture in other.list_captures()}
    clock[0] += 5.0
    while not store.offer(build_request(0.0)):
        pass
    kept = other.list_captures()
    assert len(kept) == 4 and [capture.id for capture in kept if capture.label_given] == [labelled.id]


def test_sent_png_of_the_same_pixels_is_kept_as_it_is_and_others_are_encoded(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (3, 5, 7)).astype(np.uint8)
    plain, commented, text = io.BytesIO(), io.BytesIO(), PngInfo()
    text.add_text("Comment", "the shop at the corner")
    Image.fromarray(image.transpose(1, 2, 0)).save(plain, "PNG", compress_level=0)
    Image.fromarray(image.transpose(1, 2, 0)).save(commented, "PNG", pnginfo=text)
    for index, encoded in enumerate((plain.getvalue(), commented.getvalue(), b"GIF89a", None)):
        store = CaptureStore(str(tmp_path / str(index)))
        store.offer(build_request(picture=image, encoded=encoded))
        assert store.read_pngs() == [plain.getvalue() if index == 0 else encode_png(image)]


def test_pools_do_not_use_each_others_room(tmp_path):
    store = CaptureStore(str(tmp_path), 7)
    for _ in range(20):
        store.offer(build_request(pool="usual"))
    assert (len(store.list_captures("usual")), len(store.list_captures("drift"))) == (3, 0)
    assert store.offer(build_request(pool="drift"))
    with raises_code("option-range", "max_captures", 1):
        CaptureStore(str(tmp_path), 1)


def test_too_small_key_accesses_no_files(tmp_path, clock):
    store, folder = CaptureStore(str(tmp_path / "kept"), 8, seed=0, clock=lambda: clock[0]), tmp_path / "kept"
    for _ in range(50):
        store.offer(build_request(1.0))
    folder.rename(tmp_path / "gone")
    usual = store.list_captures("usual")
    min_key = min(capture.key for capture in CaptureStore(str(tmp_path / "gone")).list_captures())
    upcoming_keys = draw_keys(0, [1] * 100)[50:]
    assert usual == [] and any(key > min_key for key in upcoming_keys)
    for key in upcoming_keys[: next(index for index, key in enumerate(upcoming_keys) if key > min_key) - 1]:
        assert key < min_key and not store.offer(build_request(1.0))
    assert not folder.exists()  # nothing was read or written
    clock[0] += 600
    # An equally small key is kept now: the files are listed again, and the captures are gone.
    assert store.offer(build_request(1.0))


def test_incomplete_captures_are_skipped_and_counted(tmp_path):
    store = CaptureStore(str(tmp_path), 20, seed=1)
    for _ in range(10):
        store.offer(build_request())
    intact, *damaged = sorted(tmp_path.glob("*.json"))
    contents = ['{"id"', "[]", "[" * 100_000, "null", intact.read_text(), "{}", "", "\ud800".encode("utf-8", "replace")]
    for path, content in zip(damaged, contents, strict=False):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    metadata = json.loads(damaged[8].read_text())
    damaged[8].write_text(json.dumps(metadata | {"scores": {"ant": float("nan")}}))
    incomplete = [
        f"usual-0.{'5' * 17}-{RECENT_ID}.png",
        f"drift-0.{'5' * 17}-{RECENT_ID}.json",
        f".usual-0.{'5' * 17}-{RECENT_ID}.json.7",
        "x",
    ]
    for name in incomplete:
        (tmp_path / name).write_text("{}")
    (tmp_path / f"usual-0.{'6' * 17}-{RECENT_ID}.json").mkdir()
    (tmp_path / f"usual-0.{'7' * 17}-{RECENT_ID}.json").symlink_to(
        intact
    )  # its target may lie outside the folder and is not read
    assert [capture.id for capture in store.list_captures()] == [intact.stem[-16:]]
    assert store.skipped_files == len(damaged) + len(incomplete)
    assert store.list_captures(limit=1) and store.list_captures("drift") == []
    with pytest.raises(CaptureNotFound):
        store.read_png(damaged[0].stem[-16:])
    with pytest.raises(CaptureNotFound):
        store.label_capture(damaged[0].stem[-16:], "ant", CLASSES)
    intact.with_suffix(".png").write_bytes(intact.with_suffix(".png").read_bytes()[:40])
    with pytest.raises(CaptureNotFound):
        store.read_png(intact.stem[-16:])


def test_stale_halves_of_captures_are_removed(tmp_path):
    stem = f"usual-0.{'5' * 17}"
    stale = [f"{stem}-{STALE_ID}.png", f".{stem}-{STALE_ID}.json.7", f"drift-0.{'4' * 17}-{STALE_ID}.json"]
    preserved = [f"{stem}-{RECENT_ID}.png", f"{stem}-{STALE_ID}-labelled.png", "notes.txt", ".hidden"]
    for name in stale + preserved:
        (tmp_path / name).write_text("")
    assert CaptureStore(str(tmp_path)).offer(build_request())
    assert not any((tmp_path / name).exists() for name in stale)
    assert all((tmp_path / name).exists() for name in preserved)
