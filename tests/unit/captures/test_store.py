"""Captures: which stay, whoever wrote them, what labels do to them, and what a place that fails does not do."""

import io
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress

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
OLD, NEW = "00000000aaaaaaaa", f"{int(time.time()):08x}aaaaaaaa"


def answered(score=0.5, side=1, channels=3, seed=0, **more):
    """A request that a model was this sure of."""
    picture = np.random.default_rng(seed).integers(0, 256, (channels, side, side), np.uint8)
    scores = {"ant": score, "bee": 1 - score, "cat": 0.0}
    return CapturedRequest(
        **{"picture": picture, "model": "m", "version": "v1", "label": "ant", "scores": scores} | more
    )


def decoded_png(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.array(image)


def sources(held):
    return sorted(int(one["source"]) for one in held.list_captures(limit=None))


def keys(seed, weights):
    """What a replica draws for requests of these weights."""
    drawn = np.random.default_rng(seed)
    return [round(float((1 - drawn.random()) ** (1 / weight)), KEY_DIGITS) for weight in weights]


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def timed(tmp_path, clock):
    return CaptureStore(str(tmp_path / "kept"), clock=lambda: clock[0])


def test_a_capture_comes_back_with_its_picture_and_all_that_is_known(tmp_path):
    held, picture = CaptureStore(str(tmp_path)), torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8)
    assert held.offer(answered(0.75, picture=picture, source="shelf 3", pool="drift"))
    [one] = held.list_captures()
    assert abs(one.pop("at") - time.time()) < 60 and 0 < one.pop("key") < 1 and len(one["id"]) == 16
    found = decoded_png(held.read_png(one.pop("id")))
    assert np.array_equal(found.transpose(2, 0, 1), picture)
    assert one == {
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


def test_a_grey_picture_comes_back_as_one(tmp_path):
    held, request = CaptureStore(str(tmp_path)), answered(side=8, channels=1)
    assert held.offer(request)
    found = decoded_png(held.read_png(held.list_captures()[0]["id"]))
    assert found.shape == (8, 8) and np.array_equal(found, request.picture[0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"picture": np.zeros((2, 4, 4), np.uint8)}, "1 or 3 channels"),
        ({"picture": np.zeros((3, 4, 4))}, "float64"),
        ({"picture": np.zeros((3, 0, 4), np.uint8)}, r"\(3, 0, 4\)"),
        ({"pool": "../x"}, "unknown capture pool"),
        ({"label": "dog"}, "one for its label 'dog'"),
        ({"scores": {"ant": float("nan")}}, "finite"),
        ({"extra_weight": -1.0}, "extra_weight must be"),
        ({"extra_weight": float("inf")}, "extra_weight must be"),
    ],
)
def test_what_is_no_capture_is_refused_when_it_is_made(wrong, words):
    with pytest.raises(ValueError, match=words):
        answered(**wrong)


def test_every_position_of_a_stream_is_kept_as_often(tmp_path):
    runs, stream, room = 60, 100, 10
    seen = Counter()
    for run in range(runs):
        held = CaptureStore(str(tmp_path / str(run)), 2 * room, seed=run)
        for position in range(stream):
            held.offer(answered(1.0, source=str(position)))
        assert len(sources(held)) == room
        seen.update(position // 10 for position in sources(held))
    assert sum(seen.values()) == runs * room
    # drawn without replacement, counts vary less than a multinomial's, by 1 - room/stream
    assert chisquare([seen[place] for place in range(10)]).statistic / (1 - room / stream) < 27.9  # p = 0.001, 9 free


def test_of_a_pool_of_one_each_is_kept_as_its_weight_says(tmp_path):
    useful, runs = [0.0, 1.0, 3.0, 7.0, 0.0], 300
    seen = Counter()
    for run in range(runs):
        held = CaptureStore(str(tmp_path / str(run)), 2, seed=run)
        for position, more in enumerate(useful):
            held.offer(answered(1.0, source=str(position), extra_weight=more))
        seen.update(sources(held))
    weights = np.array(useful) + 1
    assert chisquare([seen[place] for place in range(5)], runs * weights / weights.sum()).pvalue > 0.001


def test_an_answer_less_certain_weighs_more():
    assert answered(1.0).weight == 1
    assert answered(0.5).weight == 3
    assert answered(0.0, extra_weight=2.5).weight == 7.5
    assert answered(1.0000001).weight == 1  # softmax in float32 may come out so


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1), st.sampled_from(CAPTURE_POOLS)), max_size=40))
def test_three_replicas_keep_what_one_would(offers):
    with tempfile.TemporaryDirectory() as place:
        replicas = [CaptureStore(place, 8, seed=seed) for seed in range(3)]
        for who, score, pool in offers:
            replicas[who].offer(answered(score, pool=pool))
        drawn = []
        for seed in range(3):
            own = [(pool, answered(score).weight) for who, score, pool in offers if who == seed]
            drawn += zip([pool for pool, _ in own], keys(seed, [weight for _, weight in own]), strict=True)
        for pool in CAPTURE_POOLS:
            largest = sorted((key for of, key in drawn if of == pool), reverse=True)[:4]
            assert [one["key"] for one in replicas[0].list_captures(pool)] == largest
        assert replicas[0].skipped_files == 0


def test_replicas_that_write_at_once_keep_what_one_would(tmp_path):
    replicas, offers, room = 3, 500, 10
    start, gone_wrong = threading.Barrier(replicas), []

    def replica(seed):
        held = CaptureStore(str(tmp_path), 2 * room, seed=seed)
        start.wait()
        for _ in range(offers):
            held.offer(answered(0.9))
        gone_wrong.append(held.last_error)

    threads = [threading.Thread(target=replica, args=(seed,)) for seed in range(replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = sorted(key for seed in range(replicas) for key in keys(seed, [answered(0.9).weight] * offers))
    held = CaptureStore(str(tmp_path))
    assert [one["key"] for one in held.list_captures()] == drawn[: -room - 1 : -1]
    assert gone_wrong == [None] * replicas and held.skipped_files == 0 and len(list(tmp_path.iterdir())) == 2 * room


def test_neither_pool_takes_the_others_room(tmp_path):
    held = CaptureStore(str(tmp_path), 7)
    for _ in range(20):
        held.offer(answered(pool="usual"))
    assert (len(held.list_captures("usual")), len(held.list_captures("drift"))) == (3, 0)
    assert held.offer(answered(pool="drift"))
    with pytest.raises(ValueError, match=r"at least 2, .* got 1"):
        CaptureStore(str(tmp_path), 1)


def test_a_key_too_small_costs_no_look(tmp_path, clock):
    held, place = CaptureStore(str(tmp_path / "kept"), 8, seed=0, clock=lambda: clock[0]), tmp_path / "kept"
    for _ in range(50):
        held.offer(answered(1.0))
    place.rename(tmp_path / "gone")
    floor = held.list_captures("usual"), min(one["key"] for one in CaptureStore(str(tmp_path / "gone")).list_captures())
    coming = keys(0, [1] * 100)[50:]
    assert floor[0] == [] and any(key > floor[1] for key in coming)
    for key in coming[: next(at for at, key in enumerate(coming) if key > floor[1]) - 1]:
        assert key < floor[1] and not held.offer(answered(1.0))
    assert not place.exists()  # nothing was looked for or written
    clock[0] += KEY_REFRESH_SECONDS
    assert held.offer(answered(1.0))  # a key as small: by now it looks again, and sees that captures were taken away


def test_what_is_best_labelled_first_comes_first(tmp_path):
    held = CaptureStore(str(tmp_path))
    for place in range(6):
        held.offer(answered(pool=CAPTURE_POOLS[place % 2], source=str(place)))
    done = held.list_captures("drift")[0]["id"]
    held.label_capture(done, "bee", CLASSES)
    found = held.list_captures()
    assert [one["pool"] for one in found] == ["drift", "drift", "usual", "usual", "usual", "drift"]
    assert found[-1]["id"] == done and found[-1]["label_given"] == "bee"
    assert found[0]["key"] > found[1]["key"] and found[2]["key"] > found[3]["key"] > found[4]["key"]
    assert (
        held.list_captures(limit=2) == found[:2]
        and held.list_captures("usual", 1) == [found[2]]
        and held.list_captures(limit=0) == []
    )


def test_a_label_replaces_the_one_before_and_the_picture_stays(tmp_path):
    held = CaptureStore(str(tmp_path))
    held.offer(answered(side=4))
    [one] = held.list_captures()
    picture = held.read_png(one["id"])
    assert held.label_capture(one["id"], "bee", CLASSES) == one | {"label_given": "bee"}
    assert held.label_capture(one["id"], "cat", CLASSES)["label_given"] == "cat"
    assert held.list_captures() == [one | {"label_given": "cat"}] and held.read_png(one["id"]) == picture
    assert len(list(tmp_path.iterdir())) == 2 and held.skipped_files == 0


def test_labelled_captures_are_never_removed_to_make_room(tmp_path):
    held = CaptureStore(str(tmp_path), 8, seed=0)
    for _ in range(4):
        held.offer(answered(1.0))
    done = {one["id"] for one in held.list_captures()[1:]}
    for capture_id in done:
        held.label_capture(capture_id, "bee", CLASSES)
    assert sum(held.offer(answered(0.0, extra_weight=1e6)) for _ in range(20)) > 0
    assert {one["id"] for one in held.list_captures() if one["label_given"]} == done and len(held.list_captures()) == 4
    held.label_capture(held.list_captures()[0]["id"], "ant", CLASSES)
    held._evict()
    kept = held.list_captures()
    assert not any(held.offer(answered(0.0, extra_weight=1e12)) for _ in range(5)) and held.list_captures() == kept


def test_a_label_that_was_cut_short_by_a_kill_counts_once_and_holds(three, tmp_path):
    held, ids = three
    before = {path: path.read_bytes() for path in (tmp_path / "kept").glob(f"*{ids[0]}*")}
    held.label_capture(ids[0], "bee", CLASSES)
    for path, content in before.items():
        path.write_bytes(content)  # as if it had not come to taking them away
    assert {one["id"]: one["label_given"] for one in held.list_captures()} == {
        ids[0]: "bee",
        ids[1]: None,
        ids[2]: None,
    }
    assert len(held.list_captures()) == 3
    assert held.label_capture(ids[0], "cat", CLASSES)["label_given"] == "cat" and held.read_png(ids[0])


def test_a_label_given_while_others_make_room_is_not_lost(tmp_path):
    held, given, stop = CaptureStore(str(tmp_path), 20), set(), threading.Event()
    for _ in range(10):
        held.offer(answered(1.0))

    def offering():
        replica = CaptureStore(str(tmp_path), 20)
        for more in range(100):
            replica.offer(answered(0.0, extra_weight=10.0**more))
        stop.set()

    other = threading.Thread(target=offering)
    other.start()
    while not stop.is_set() and len(given) < 8:
        for one in [one for one in held.list_captures() if one["label_given"] is None][-1:]:  # the next to make room
            with suppress(CaptureNotFound):
                given.add(held.label_capture(one["id"], "bee", CLASSES)["id"])
    other.join()
    found = {one["id"] for one in held.list_captures() if one["label_given"] == "bee"}
    assert found == given and held.skipped_files == 0


@pytest.mark.parametrize("wrong", ["../x", "", "a" * 300, "0" * 15, "0" * 16 + "\n", "A" * 16, "\u0660" * 16])
def test_what_is_no_id_is_refused(tmp_path, wrong):
    held = CaptureStore(str(tmp_path))
    for call in (held.read_png, lambda one: held.label_capture(one, "ant", CLASSES)):
        with pytest.raises(CaptureNotFound, match="is not a capture id") as refused:
            call(wrong)
        assert len(str(refused.value)) < 120


def test_an_id_that_is_not_there_and_a_class_that_is_none_are_named(tmp_path):
    held = CaptureStore(str(tmp_path))
    held.offer(answered())
    with pytest.raises(CaptureNotFound, match="no capture 0123456789abcdef"):
        held.read_png("0123456789abcdef")
    with pytest.raises(CaptureNotFound, match="no capture 0123456789abcdef"):
        held.label_capture("0123456789abcdef", "ant", CLASSES)
    with pytest.raises(ValueError, match=r"no class 'dog'; there are: ant, bee, cat$"):
        held.label_capture(held.list_captures()[0]["id"], "dog", CLASSES)
    with pytest.raises(ValueError, match=r"c19 and 80 more$"):
        held.label_capture(held.list_captures()[0]["id"], "dog", [f"c{place}" for place in range(100)])


@pytest.fixture
def three(tmp_path):
    held = CaptureStore(str(tmp_path / "kept"))
    for _ in range(3):
        held.offer(answered())
    return held, [one["id"] for one in held.list_captures()]


def test_a_table_gives_labels(three):
    held, ids = three
    assert held.label_from_csv(f'\ufeffid,label\r\n{ids[0]},bee\r\n\r\n{ids[1]}, "cat"\r\n', CLASSES) == 2
    assert {one["id"]: one["label_given"] for one in held.list_captures()} == dict(
        zip(ids, ["bee", "cat", None], strict=True)
    )
    assert held.label_from_csv("id,label\n", CLASSES) == 0


@pytest.mark.parametrize(
    ("rows", "words"),
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
def test_a_table_with_a_wrong_row_gives_no_label(three, rows, words):
    held, ids = three
    with pytest.raises(ValueError, match=words.replace("{{", "{").replace("}}", "}")) as refused:
        held.label_from_csv(rows.format(*ids), CLASSES)
    assert len(str(refused.value).splitlines()) == 1
    assert not any(one["label_given"] for one in held.list_captures())


def test_what_is_no_whole_capture_is_passed_over_and_counted(tmp_path):
    held = CaptureStore(str(tmp_path), 20, seed=1)
    for _ in range(10):
        held.offer(answered())
    whole, *rest = sorted(tmp_path.glob("*.json"))
    contents = ['{"id"', "[]", "[" * 100_000, "null", whole.read_text(), "{}", "", "\ud800".encode("utf-8", "replace")]
    for path, content in zip(rest, contents, strict=False):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    infinite = json.loads(rest[8].read_text())
    rest[8].write_text(json.dumps(infinite | {"scores": {"ant": float("nan")}}))
    half = [f"usual-0.{'5' * 17}-{NEW}.png", f"drift-0.{'5' * 17}-{NEW}.json", f".usual-0.{'5' * 17}-{NEW}.json.7", "x"]
    for name in half:
        (tmp_path / name).write_text("{}")
    (tmp_path / f"usual-0.{'6' * 17}-{NEW}.json").mkdir()
    (tmp_path / f"usual-0.{'7' * 17}-{NEW}.json").symlink_to(whole)  # what it may point to is not ours to read
    assert [one["id"] for one in held.list_captures()] == [whole.stem[-16:]]
    assert held.skipped_files == len(rest) + len(half)
    assert held.list_captures(limit=1) and held.list_captures("drift") == []
    with pytest.raises(CaptureNotFound, match="is damaged"):
        held.read_png(rest[0].stem[-16:])
    with pytest.raises(CaptureNotFound, match="is damaged"):
        held.label_capture(rest[0].stem[-16:], "ant", CLASSES)
    whole.with_suffix(".png").write_bytes(whole.with_suffix(".png").read_bytes()[:40])
    with pytest.raises(CaptureNotFound, match="is damaged"):
        held.read_png(whole.stem[-16:])


def test_halves_that_a_kill_left_go_once_they_are_old(tmp_path):
    stem = f"usual-0.{'5' * 17}"
    old = [f"{stem}-{OLD}.png", f".{stem}-{OLD}.json.7", f"drift-0.{'4' * 17}-{OLD}.json"]
    stays = [f"{stem}-{NEW}.png", f"{stem}-{OLD}-labelled.png", "notes.txt", ".hidden"]
    for name in old + stays:
        (tmp_path / name).write_text("")
    assert CaptureStore(str(tmp_path)).offer(answered())
    assert not any((tmp_path / name).exists() for name in old)
    assert all((tmp_path / name).exists() for name in stays)


def test_an_object_store_is_as_good_as_a_folder(memory, tmp_path):
    replicas = [CaptureStore("memory://bucket/captures", 8, seed=seed) for seed in (0, 1)]
    for place in range(60):
        replicas[place % 2].offer(answered(1.0, side=4))
    held = replicas[0]
    assert [one["key"] for one in held.list_captures()] == sorted(keys(0, [1] * 30) + keys(1, [1] * 30), reverse=True)[
        :4
    ]
    one, two = (found["id"] for found in held.list_captures()[:2])
    assert held.label_from_csv(f"id,label\n{one},ant\n{two},bee\n", CLASSES) == 2
    assert held.label_capture(two, "cat", CLASSES)["label_given"] == "cat"
    assert held.read_png(one)[:4] == b"\x89PNG" and len(memory.ls("/bucket/captures")) == 8
    assert held.export_labelled(tmp_path / "out") == {"ant": 1, "cat": 1}
    held._remove_files(held._scan_files()[0][0])
    held._remove_files(CaptureName("usual", 0.5, OLD, False))  # gone already: another replica made room too
    assert len(held.list_captures()) == 3 and held.skipped_files == 0


def test_a_file_url_is_a_folder(tmp_path):
    held = CaptureStore(f"file://{tmp_path}/kept")
    assert held.offer(answered()) and isinstance(held._directory, LocalDirectory)
    assert len(list((tmp_path / "kept").iterdir())) == 2


@pytest.mark.parametrize(
    ("place", "words"),
    [("nonsense://x", "nonsense:// is not a supported object store"), ("zip://x::file://y", "chain of stores")],
)
def test_a_place_of_an_unknown_kind_is_refused(place, words):
    with pytest.raises(ValueError, match=words):
        CaptureStore(place)


def test_whatever_a_store_raises_is_an_os_error():
    with pytest.raises(OSError, match="KeyError: 'bucket'"), convert_to_os_error():
        raise KeyError("bucket")
    with pytest.raises(FileNotFoundError), convert_to_os_error():
        raise FileNotFoundError


def test_a_file_in_place_of_the_folder_is_told_and_tried_again_later(timed, clock, tmp_path):
    (tmp_path / "kept").write_text("")
    assert not timed.offer(answered())
    assert timed.last_error == f"cannot write captures to {tmp_path}/kept: Not a directory; make it writable"
    (tmp_path / "kept").unlink()
    clock[0] += CAPTURE_RETRY_SECONDS - 1
    assert not timed.offer(answered()) and timed.last_error and not (tmp_path / "kept").exists()
    clock[0] += 2
    assert timed.offer(answered()) and timed.last_error is None


def test_a_file_in_place_of_a_folder_of_a_store_is_told(memory):
    memory.pipe_file("/bucket", b"")
    held = CaptureStore("memory://bucket/captures")
    assert not held.offer(answered())
    assert held.last_error and len(held.last_error.splitlines()) == 1
    memory.rm_file("/bucket")


@pytest.fixture
def small_disk(tmp_path):
    """64 KiB that can be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk small enough to fill")
    done = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"this machine lets no disk be mounted ({done.stderr.strip()})")
    yield place
    subprocess.run(["/bin/umount", place], check=True)


@pytest.mark.parametrize(("side", "taken"), [(64, 0), (1, 4096)])
def test_a_full_disk_stops_nothing_and_holds_no_half(small_disk, clock, side, taken):
    held = CaptureStore(str(small_disk), clock=lambda: clock[0])
    (small_disk / "taken").write_bytes(bytes(taken))  # of 16 pages: with one less it is the JSON that finds no room
    kept = 0
    while held.offer(answered(side=side)):
        kept += 1
    assert kept > 1 and "No space left on device" in held.last_error
    assert len(held.list_captures()) == kept and held.skipped_files == 1
    assert len(list(small_disk.iterdir())) == 2 * kept + 1
    [last, *_] = small_disk.glob("*.json")
    last.unlink()
    last.with_suffix(".png").unlink()
    clock[0] += CAPTURE_RETRY_SECONDS - 1
    assert not held.offer(answered(side=side)) and held.last_error
    clock[0] += 2
    assert held.offer(answered(side=side)) and held.last_error is None
    assert len(list(small_disk.iterdir())) == 2 * kept + 1


def test_a_label_for_which_there_is_no_room_changes_nothing(small_disk):
    held = CaptureStore(str(small_disk))
    while held.offer(answered(side=64)):
        pass
    before, files = held.list_captures(), set(small_disk.iterdir())
    with pytest.raises(OSError, match="No space left"):
        held.label_capture(before[0]["id"], "bee", CLASSES)
    assert held.list_captures() == before and set(small_disk.iterdir()) == files


def test_a_disk_that_is_read_only_is_told(small_disk, clock):
    held = CaptureStore(str(small_disk), clock=lambda: clock[0])
    assert held.offer(answered())
    subprocess.run(["/bin/mount", "-o", "remount,ro", small_disk], check=True)
    assert not held.offer(answered())
    assert "Read-only file system" in held.last_error and len(held.list_captures()) == 1


def test_what_is_exported_is_what_the_folder_workload_reads(tmp_path):
    held, given = CaptureStore(str(tmp_path / "kept")), {}
    for seed in range(9):
        held.offer(answered(side=8, seed=seed, source=str(seed)))
    for one in held.list_captures()[:-1]:
        given[one["id"]] = (CLASSES[int(one["source"]) % 2], int(one["source"]))
        held.label_capture(one["id"], given[one["id"]][0], CLASSES)
    counts = held.export_labelled(tmp_path / "new" / "out")
    names, paths, labels = find_labelled_images(tmp_path / "new" / "out")
    assert names == ["ant", "bee"] and sum(counts.values()) == len(paths) == 8
    readable, pictures = decode_images(paths, 8)
    assert readable.all()
    for path, label, picture in zip(paths, labels, pictures, strict=True):
        name, seed = given[path.stem]
        assert names[label] == name and np.array_equal(picture.numpy(), answered(side=8, seed=seed).picture)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_an_export_of_nothing_or_over_something_is_refused(three, tmp_path):
    held, ids = three
    with pytest.raises(ValueError, match=r"no capture in .* is labelled: there is nothing to export"):
        held.export_labelled(tmp_path / "out")
    held.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    with pytest.raises(ValueError, match="is labelled as dog, cat"):
        held.export_labelled(tmp_path / "out", ["dog", "cat"])
    assert held.export_labelled(tmp_path / "out", ["ant", "cat"]) == {"ant": 1}
    with pytest.raises(ValueError, match="exists already"):
        held.export_labelled(tmp_path / "out")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "__pycache__", "", "a\\b", "nul\0"])
def test_a_class_that_cannot_name_a_folder_is_refused(three, tmp_path, name):
    held, ids = three
    held.label_capture(ids[0], name, [name, "bee"])
    held.label_capture(ids[1], "bee", [name, "bee"])
    with pytest.raises(ValueError, match="a folder cannot have this name"):
        held.export_labelled(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_damaged_picture_is_not_exported(three, tmp_path):
    held, ids = three
    held.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    [damaged] = (tmp_path / "kept").glob(f"*{ids[0]}-labelled.png")
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert held.export_labelled(tmp_path / "out") == {"bee": 1} and held.skipped_files == 1
