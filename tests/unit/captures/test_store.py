"""Capture store: sampling by many replicas, labelling, export, and locations that fail or hold damaged files."""

import io
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import chisquare

from equipoise.captures.capture import CAPTURE_POOLS, KEY_DIGITS, CapturedRequest, CaptureName
from equipoise.captures.store import CAPTURE_RETRY_SECONDS, KEY_REFRESH_SECONDS, CaptureNotFound, CaptureStore
from equipoise.storage.directory import LocalDirectory, convert_to_os_error
from equipoise.workloads.image_folder import decode_images, find_labelled_images

CLASSES = ["ant", "bee", "cat"]
HEAVY_SCORE = -1e6  # no model gives it: a weight of 4 million, so that nearly every offer evicts another capture
STALE_ID, RECENT_ID = "00000000aaaaaaaa", f"{int(time.time()):08x}aaaaaaaa"


def build_request(score=0.5, side=1, channels=3, seed=0, **fields):
    """Build a captured request that was predicted with this score."""
    image = np.random.default_rng(seed).integers(0, 256, (channels, side, side), np.uint8)
    scores = {"ant": score, "bee": 1 - score, "cat": 0.0}
    return CapturedRequest(
        **{"picture": image, "model": "m", "version": "v1", "label": "ant", "scores": scores} | fields
    )


def decode_png(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.array(image)


def read_sources(store):
    return sorted(int(capture.source) for capture in store.list_captures(limit=None))


def draw_keys(seed, weights):
    """Return the keys that a replica with this seed draws for requests of these weights."""
    rng = np.random.default_rng(seed)
    return [round(float((1 - rng.random()) ** (1 / weight)), KEY_DIGITS) for weight in weights]


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def store_with_clock(tmp_path, clock):
    return CaptureStore(str(tmp_path / "kept"), clock=lambda: clock[0])


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


def test_pools_do_not_use_each_others_room(tmp_path):
    store = CaptureStore(str(tmp_path), 7)
    for _ in range(20):
        store.offer(build_request(pool="usual"))
    assert (len(store.list_captures("usual")), len(store.list_captures("drift"))) == (3, 0)
    assert store.offer(build_request(pool="drift"))
    with pytest.raises(ValueError, match=r"at least 2, .* got 1"):
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
    clock[0] += KEY_REFRESH_SECONDS
    # An equally small key is kept now: the files are listed again, and the captures are gone.
    assert store.offer(build_request(1.0))


def test_captures_most_useful_to_label_come_first(tmp_path):
    store = CaptureStore(str(tmp_path))
    for index in range(6):
        store.offer(build_request(pool=CAPTURE_POOLS[index % 2], source=str(index)))
    labelled_id = store.list_captures("drift")[0].id
    store.label_capture(labelled_id, "bee", CLASSES)
    captures = store.list_captures()
    assert [capture.pool for capture in captures] == ["drift", "drift", "usual", "usual", "usual", "drift"]
    assert captures[-1].id == labelled_id and captures[-1].label_given == "bee"
    assert captures[0].key > captures[1].key and captures[2].key > captures[3].key > captures[4].key
    assert (
        store.list_captures(limit=2) == captures[:2]
        and store.list_captures("usual", 1) == [captures[2]]
        and store.list_captures(limit=0) == []
    )


def test_new_label_replaces_the_old_one_and_keeps_the_image(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request(side=4))
    [capture] = store.list_captures()
    png = store.read_png(capture.id)
    assert store.label_capture(capture.id, "bee", CLASSES) == replace(capture, label_given="bee")
    assert store.label_capture(capture.id, "cat", CLASSES).label_given == "cat"
    assert store.list_captures() == [replace(capture, label_given="cat")] and store.read_png(capture.id) == png
    assert len(list(tmp_path.iterdir())) == 2 and store.skipped_files == 0


def test_labelled_captures_are_never_evicted(tmp_path):
    store = CaptureStore(str(tmp_path), 8, seed=0)
    for _ in range(4):
        store.offer(build_request(1.0))
    labelled_ids = {capture.id for capture in store.list_captures()[1:]}
    for capture_id in labelled_ids:
        store.label_capture(capture_id, "bee", CLASSES)
    assert sum(store.offer(build_request(HEAVY_SCORE)) for _ in range(20)) > 0
    assert {capture.id for capture in store.list_captures() if capture.label_given} == labelled_ids and len(
        store.list_captures()
    ) == 4
    store.label_capture(store.list_captures()[0].id, "ant", CLASSES)
    store._evict()
    captures = store.list_captures()
    assert not any(store.offer(build_request(HEAVY_SCORE)) for _ in range(5)) and store.list_captures() == captures


def test_label_interrupted_by_a_kill_counts_once_and_is_kept(three_captures, tmp_path):
    store, ids = three_captures
    before = {path: path.read_bytes() for path in (tmp_path / "kept").glob(f"*{ids[0]}*")}
    store.label_capture(ids[0], "bee", CLASSES)
    for path, content in before.items():
        path.write_bytes(content)  # as if killed before it removed these files
    assert {capture.id: capture.label_given for capture in store.list_captures()} == {
        ids[0]: "bee",
        ids[1]: None,
        ids[2]: None,
    }
    assert len(store.list_captures()) == 3
    assert store.label_capture(ids[0], "cat", CLASSES).label_given == "cat" and store.read_png(ids[0])


def test_label_given_during_eviction_is_not_lost(tmp_path):
    store, labelled_ids, finished = CaptureStore(str(tmp_path), 20), set(), threading.Event()
    for _ in range(10):
        store.offer(build_request(1.0))

    def offer_captures():
        replica = CaptureStore(str(tmp_path), 20)
        for exponent in range(100):
            replica.offer(build_request(-(10.0**exponent)))
        finished.set()

    thread = threading.Thread(target=offer_captures)
    thread.start()
    while not finished.is_set() and len(labelled_ids) < 8:
        unlabelled = [capture for capture in store.list_captures() if capture.label_given is None]
        for capture in unlabelled[-1:]:  # the next to be evicted
            with suppress(CaptureNotFound):
                labelled_ids.add(store.label_capture(capture.id, "bee", CLASSES).id)
    thread.join()
    bee_ids = {capture.id for capture in store.list_captures() if capture.label_given == "bee"}
    assert bee_ids == labelled_ids and store.skipped_files == 0


@pytest.mark.parametrize("invalid_id", ["../x", "", "a" * 300, "0" * 15, "0" * 16 + "\n", "A" * 16, "\u0660" * 16])
def test_invalid_capture_id_is_refused(tmp_path, invalid_id):
    store = CaptureStore(str(tmp_path))
    for access in (store.read_png, lambda capture_id: store.label_capture(capture_id, "ant", CLASSES)):
        with pytest.raises(CaptureNotFound, match="is not a capture id") as error:
            access(invalid_id)
        assert len(str(error.value)) < 120


def test_missing_id_and_unknown_class_are_named_in_the_error(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request())
    with pytest.raises(CaptureNotFound, match="no capture 0123456789abcdef"):
        store.read_png("0123456789abcdef")
    with pytest.raises(CaptureNotFound, match="no capture 0123456789abcdef"):
        store.label_capture("0123456789abcdef", "ant", CLASSES)
    with pytest.raises(ValueError, match=r"no class 'dog'; there are: ant, bee, cat$"):
        store.label_capture(store.list_captures()[0].id, "dog", CLASSES)
    with pytest.raises(ValueError, match=r"c19 and 80 more$"):
        store.label_capture(store.list_captures()[0].id, "dog", [f"c{index}" for index in range(100)])


@pytest.fixture
def three_captures(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    for _ in range(3):
        store.offer(build_request())
    return store, [capture.id for capture in store.list_captures()]


def test_csv_labels_captures(three_captures):
    store, ids = three_captures
    assert store.label_from_csv(f'\ufeffid,label\r\n{ids[0]},bee\r\n\r\n{ids[1]}, "cat"\r\n', CLASSES) == 2
    assert {capture.id: capture.label_given for capture in store.list_captures()} == dict(
        zip(ids, ["bee", "cat", None], strict=True)
    )
    assert store.label_from_csv("id,label\n", CLASSES) == 0


@pytest.mark.parametrize(
    ("csv_text", "message"),
    [
        ("", "row 1 must be id,label, got ''"),
        ("{0},bee", "row 1 must be id,label"),
        ("id,label\n{0},bee\n{1},dog\nx,y", "row 3: there is no class 'dog'; there are: ant, bee, cat"),
        ("id,label\n{0},bee\n\n../x,bee", r"row 4: '\.\./x' is not a capture id"),
        ("id,label\n{0},bee\n0123456789abcdef,bee", "row 3: there is no capture 0123456789abcdef"),
        ("id,label\n{0},bee\n{1},bee\n{0},cat", "row 4: [0-9a-f]{{16}} already has a label in row 2"),
        ("id,label\n{0},bee\n{1}", "row 3 has 1 columns"),
        ("id,label\n{0},bee\n{1},bee,cat", "row 3 has 3 columns"),
        ("id,label\n{0},", "row 2: there is no class ''"),
        ("id,label\n{0}," + "x" * 200_000, "row 2 is not CSV"),
    ],
)
def test_csv_with_an_invalid_row_labels_nothing(three_captures, csv_text, message):
    store, ids = three_captures
    with pytest.raises(ValueError, match=message.replace("{{", "{").replace("}}", "}")) as error:
        store.label_from_csv(csv_text.format(*ids), CLASSES)
    assert len(str(error.value).splitlines()) == 1
    assert not any(capture.label_given for capture in store.list_captures())


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
    with pytest.raises(CaptureNotFound, match="is damaged"):
        store.read_png(damaged[0].stem[-16:])
    with pytest.raises(CaptureNotFound, match="is damaged"):
        store.label_capture(damaged[0].stem[-16:], "ant", CLASSES)
    intact.with_suffix(".png").write_bytes(intact.with_suffix(".png").read_bytes()[:40])
    with pytest.raises(CaptureNotFound, match="is damaged"):
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


def test_object_store_works_like_a_folder(memory, tmp_path):
    replicas = [CaptureStore("memory://bucket/captures", 8, seed=seed) for seed in (0, 1)]
    for index in range(60):
        replicas[index % 2].offer(build_request(1.0, side=4))
    store = replicas[0]
    assert [capture.key for capture in store.list_captures()] == sorted(
        draw_keys(0, [1] * 30) + draw_keys(1, [1] * 30), reverse=True
    )[:4]
    first_id, second_id = (capture.id for capture in store.list_captures()[:2])
    assert store.label_from_csv(f"id,label\n{first_id},ant\n{second_id},bee\n", CLASSES) == 2
    assert store.label_capture(second_id, "cat", CLASSES).label_given == "cat"
    assert store.read_png(first_id)[:4] == b"\x89PNG" and len(memory.ls("/bucket/captures")) == 8
    assert store.export_labelled(tmp_path / "out") == {"ant": 1, "cat": 1}
    store._remove_files(store._scan_files()[0][0])
    store._remove_files(CaptureName("usual", 0.5, STALE_ID, False))  # already removed by another replica
    assert len(store.list_captures()) == 3 and store.skipped_files == 0


def test_file_url_is_a_local_folder(tmp_path):
    store = CaptureStore(f"file://{tmp_path}/kept")
    assert store.offer(build_request()) and isinstance(store._directory, LocalDirectory)
    assert len(list((tmp_path / "kept").iterdir())) == 2


@pytest.mark.parametrize(
    ("location", "message"),
    [("nonsense://x", "nonsense:// is not a supported object store"), ("zip://x::file://y", "chain of stores")],
)
def test_unsupported_location_is_refused(location, message):
    with pytest.raises(ValueError, match=message):
        CaptureStore(location)


def test_errors_of_a_storage_client_become_os_errors():
    with pytest.raises(OSError, match="KeyError: 'bucket'"), convert_to_os_error():
        raise KeyError("bucket")
    with pytest.raises(FileNotFoundError), convert_to_os_error():
        raise FileNotFoundError


def test_file_in_place_of_the_folder_is_reported_and_retried_later(store_with_clock, clock, tmp_path):
    (tmp_path / "kept").write_text("")
    assert not store_with_clock.offer(build_request())
    assert store_with_clock.last_error == f"cannot write captures to {tmp_path}/kept: Not a directory; make it writable"
    (tmp_path / "kept").unlink()
    clock[0] += CAPTURE_RETRY_SECONDS - 1
    assert (
        not store_with_clock.offer(build_request()) and store_with_clock.last_error and not (tmp_path / "kept").exists()
    )
    clock[0] += 2
    assert store_with_clock.offer(build_request()) and store_with_clock.last_error is None


def test_file_in_place_of_an_object_store_folder_is_reported(memory):
    memory.pipe_file("/bucket", b"")
    store = CaptureStore("memory://bucket/captures")
    assert not store.offer(build_request())
    assert store.last_error and len(store.last_error.splitlines()) == 1
    memory.rm_file("/bucket")


@pytest.fixture
def small_disk(tmp_path):
    """Mount a disk of 64 KiB, small enough to fill."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk small enough to fill")
    process = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True
    )
    if process.returncode:
        pytest.skip(f"this machine does not allow mounting a disk ({process.stderr.strip()})")
    yield folder
    subprocess.run(["/bin/umount", folder], check=True)


@pytest.mark.parametrize(("side", "used_bytes"), [(64, 0), (1, 4096)])
def test_full_disk_holds_no_incomplete_capture_and_is_retried(small_disk, clock, side, used_bytes):
    store = CaptureStore(str(small_disk), clock=lambda: clock[0])
    # The disk has 16 pages: with one page less, the file that does not fit is the JSON.
    (small_disk / "taken").write_bytes(bytes(used_bytes))
    count = 0
    while store.offer(build_request(side=side)):
        count += 1
    assert count > 1 and "No space left on device" in store.last_error
    assert len(store.list_captures()) == count and store.skipped_files == 1
    assert len(list(small_disk.iterdir())) == 2 * count + 1
    [last, *_] = small_disk.glob("*.json")
    last.unlink()
    last.with_suffix(".png").unlink()
    clock[0] += CAPTURE_RETRY_SECONDS - 1
    assert not store.offer(build_request(side=side)) and store.last_error
    clock[0] += 2
    assert store.offer(build_request(side=side)) and store.last_error is None
    assert len(list(small_disk.iterdir())) == 2 * count + 1


def test_label_on_a_full_disk_changes_nothing(small_disk):
    store = CaptureStore(str(small_disk))
    while store.offer(build_request(side=64)):
        pass
    before, files = store.list_captures(), set(small_disk.iterdir())
    with pytest.raises(OSError, match="No space left"):
        store.label_capture(before[0].id, "bee", CLASSES)
    assert store.list_captures() == before and set(small_disk.iterdir()) == files


def test_read_only_disk_is_reported(small_disk, clock):
    store = CaptureStore(str(small_disk), clock=lambda: clock[0])
    assert store.offer(build_request())
    subprocess.run(["/bin/mount", "-o", "remount,ro", small_disk], check=True)
    assert not store.offer(build_request())
    assert "Read-only file system" in store.last_error and len(store.list_captures()) == 1


def test_folder_workload_reads_an_export(tmp_path):
    store, labels_and_seeds = CaptureStore(str(tmp_path / "kept")), {}
    for seed in range(9):
        store.offer(build_request(side=8, seed=seed, source=str(seed)))
    for capture in store.list_captures()[:-1]:
        labels_and_seeds[capture.id] = (CLASSES[int(capture.source) % 2], int(capture.source))
        store.label_capture(capture.id, labels_and_seeds[capture.id][0], CLASSES)
    counts = store.export_labelled(tmp_path / "new" / "out")
    names, paths, label_indices = find_labelled_images(tmp_path / "new" / "out")
    assert names == ["ant", "bee"] and sum(counts.values()) == len(paths) == 8
    readable, images = decode_images(paths, 8)
    assert readable.all()
    for path, label_index, image in zip(paths, label_indices, images, strict=True):
        name, seed = labels_and_seeds[path.stem]
        assert names[label_index] == name and np.array_equal(image.numpy(), build_request(side=8, seed=seed).picture)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_export_of_nothing_or_over_an_existing_folder_is_refused(three_captures, tmp_path):
    store, ids = three_captures
    with pytest.raises(ValueError, match=r"no capture in .* is labelled: there is nothing to export"):
        store.export_labelled(tmp_path / "out")
    store.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    with pytest.raises(ValueError, match="is labelled as dog, cat"):
        store.export_labelled(tmp_path / "out", ["dog", "cat"])
    assert store.export_labelled(tmp_path / "out", ["ant", "cat"]) == {"ant": 1}
    with pytest.raises(ValueError, match="exists already"):
        store.export_labelled(tmp_path / "out")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "__pycache__", "", "a\\b", "nul\0"])
def test_class_that_cannot_be_a_folder_name_is_refused(three_captures, tmp_path, name):
    store, ids = three_captures
    store.label_capture(ids[0], name, [name, "bee"])
    store.label_capture(ids[1], "bee", [name, "bee"])
    with pytest.raises(ValueError, match="a folder cannot have this name"):
        store.export_labelled(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_damaged_image_is_not_exported(three_captures, tmp_path):
    store, ids = three_captures
    store.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    [damaged] = (tmp_path / "kept").glob(f"*{ids[0]}-labelled.png")
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert store.export_labelled(tmp_path / "out") == {"bee": 1} and store.skipped_files == 1
