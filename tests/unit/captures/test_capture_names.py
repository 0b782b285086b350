"""Names of captures, which say what is kept and what is a leftover, and the limits of a store."""

import re
import time

import pytest

from equipoise.captures.capture import CaptureName, is_stale_file, labelling_priority, new_capture_id
from equipoise.captures.labels import format_class_list, parse_label_csv, require_class, require_folder_name
from equipoise.captures.store import CaptureStore
from tests.support.captures import build_request, draw_keys
from tests.support.errors import raises_code

KEY = "0.12345678901234500"


def test_id_begins_with_the_second_in_which_it_was_made():
    before = int(time.time())
    ids = {new_capture_id() for _ in range(20)}
    assert len(ids) == 20 and all(re.fullmatch("[0-9a-f]{16}", capture_id) for capture_id in ids)
    for capture_id in ids:
        assert before <= CaptureName("usual", 0.5, capture_id, False).unix_seconds <= time.time()


def test_files_are_named_by_pool_key_id_and_label():
    name = CaptureName("usual", 0.123456789012345, "0123456789abcdef", False)
    assert name.stem == f"usual-{KEY}-0123456789abcdef"
    assert name._replace(labelled=True).stem == f"usual-{KEY}-0123456789abcdef-labelled"


@pytest.mark.parametrize(
    ("name", "is_stale"),
    [
        ("usual-{key}-{old}.png", True),
        (".drift-{key}-{old}.json.123", True),
        ("usual-{key}-{recent}.png", False),
        ("usual-{key}-{old}-labelled.png", False),
        ("usual-{key}-{old}.jpg", False),
        ("other-{key}-{old}.png", False),
        ("usual-0.5-{old}.png", False),
    ],
)
def test_halves_of_captures_are_stale_after_an_hour(name, is_stale):
    seconds = int(time.time())
    old, recent = (f"{seconds - age:08x}00000000" for age in (3610, 3590))
    assert is_stale_file(name.format(key=KEY, old=old, recent=recent)) == is_stale


def test_unlabelled_captures_of_the_drift_with_large_keys_come_first():
    names = [
        CaptureName(pool, key, "0" * 16, labelled)
        for labelled in (False, True)
        for pool in ("drift", "usual")
        for key in (0.9, 0.1)
    ]
    assert sorted((names[index] for index in (5, 2, 7, 0, 3, 6, 1, 4)), key=labelling_priority) == names


def test_request_of_a_uniform_sample_weighs_as_any_other():
    assert build_request(0.1, is_uniform=True).weight == 1.0


def test_store_keeps_five_hundred_captures_and_lists_a_hundred_unless_asked_for_others(tmp_path):
    store = CaptureStore(str(tmp_path))
    assert store.pool_capacity == 250
    for _ in range(102):
        assert store.offer(build_request())
    assert [len(store.list_captures(limit=limit)) for limit in (0, 101, None)] == [0, 101, 102]
    assert len(store.list_captures()) == 100 and store.skipped_files == 0


def test_room_is_one_half_for_each_pool(tmp_path):
    assert [CaptureStore(str(tmp_path), count).pool_capacity for count in (2, 3, 9)] == [1, 1, 4]


def test_older_captures_without_a_label_are_removed(tmp_path):
    store = CaptureStore(str(tmp_path))
    for second in (100, 200, 300):
        name = CaptureName("usual", 0.5 + second / 1000, f"{second:08x}00000000", second == 100)
        for suffix in ("png", "json"):
            (tmp_path / f"{name.stem}.{suffix}").write_text("{}")
    store.remove_older(200.9)  # of the same second as the second capture
    assert len(list(tmp_path.iterdir())) == 6
    store.remove_older(201)
    assert sorted(int(path.name.split("-")[2][:8], 16) for path in tmp_path.glob("*.json")) == [100, 300]
    assert len(list(tmp_path.glob("*-labelled.*"))) == 2
    CaptureStore(str(tmp_path / "none")).remove_older(1e9)


def test_list_of_classes_names_up_to_twenty():
    names = [f"c{index}" for index in range(22)]
    assert format_class_list(names[:20]).endswith("c18, c19")
    assert format_class_list(names[:21]).endswith("c19 and 1 more")
    require_class("c21", names)
    with raises_code("class-unknown", f"there is no class '{'x' * 40}'"):
        require_class("x" * 41, names)


@pytest.mark.parametrize("name", ["", ".hidden", "__pycache__", "a/b", "a\\b", "a\0b"])
def test_name_that_no_folder_of_images_has_is_refused(name):
    with raises_code("labels-invalid"):
        require_folder_name(name)
    for usable in ("a.b", "_a", "cat 2", "a__"):
        require_folder_name(usable)


def test_rows_of_a_csv_have_their_numbers():
    assert parse_label_csv('id,label\n a ,"b, c"\n\nd, e \n') == [(2, "a", "b, c"), (4, "d", "e ")]
    with raises_code("labels-invalid", "row 3 has 3 columns"):
        parse_label_csv("id,label\na,b\na,b,c\n")
    with raises_code("labels-invalid", f"got '{'x' * 80}'"):
        parse_label_csv("x" * 100)


def test_location_is_listed_again_once_the_time_between_listings_has_passed(tmp_path):
    now = [0.0]
    store = CaptureStore(str(tmp_path), 200, clock=lambda: now[0], listing_seconds=5.0)
    store.offer(build_request())
    other = CaptureStore(str(tmp_path), 200)
    for seconds, known in ((0.0, 1), (4.9, 2), (5.0, 3)):
        now[0] = seconds
        assert len(store._kept["usual"]) == known
        for _ in range(10 if seconds == 4.9 else 0):
            other.offer(build_request())
        store.offer(build_request())
    assert len(store._kept["usual"]) == 14  # with those of the other store


def test_room_of_captures_that_were_removed_is_free_at_once(tmp_path):
    keys = draw_keys(3, [1.0] * 40)
    position = next(index for index in range(5, 40) if keys[index] < 0.5 * max(keys[:index]))
    store = CaptureStore(str(tmp_path), 2, seed=3)
    for _ in range(position):
        store.offer(build_request(1.0))
    store.remove_older(time.time() + 10)
    assert not list(tmp_path.iterdir()) and store.offer(build_request(1.0))
