import json
import os
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.drift.monitor import monitor as module
from equipoise.drift.monitor.monitor import MAX_SOURCES, OTHER_SOURCES, Monitor, Report
from equipoise.drift.monitor.report_ledger import Tick
from tests.support.drift_data import CLASSES, extract_shape_features, render_shapes, shapes_profile

STREAM = "toy/1"
ASKED = 2000.0
TICKS, EACH = 12, 24  # of the clock, and pictures within each


def arrays():
    return shapes_profile().to_arrays() | {"classes": np.array(CLASSES), "width": np.array(9)}


def begun(folder, stream=STREAM):
    made = Monitor(folder, ASKED)
    made.register(stream, arrays())
    return made


@cache
def drawn():
    """(ticks, pictures, sums): half of the ticks clean, half darker."""
    some = render_shapes(TICKS * EACH, 60)[0]
    some[TICKS * EACH // 2 :] = (some[TICKS * EACH // 2 :].float() * 0.7).byte()
    shown = extract_shape_features(some)
    made = np.stack([shapes_profile().baseline.sum_features(shown.select([place])) for place in range(len(shown))])
    return made.reshape(TICKS, EACH, -1)


@pytest.fixture
def rows():
    return drawn()


def ticks(rows, replicas, rng, streams=(STREAM,)):
    """What each of several replicas tells: a tick for each of the clock's in which it has something to say."""
    told = {f"replica {place}": [] for place in range(replicas)}
    for clock, some in enumerate(rows):
        owner = rng.integers(0, replicas, len(some))
        for place, (_, mine) in enumerate(told.items()):
            if len(part := some[rng.permutation(np.flatnonzero(owner == place))]):
                spread = rng.choice(len(streams), len(part))
                held = {name: part[spread == at].sum(0) for at, name in enumerate(streams) if (spread == at).any()}
                mine.append(Tick(len(mine) + 1, clock, held))
    return told


def state(made):
    """All that counts, but for how it was delivered."""
    return {name: watch.state_arrays() for name, watch in made.detectors.items()}


def same(one, other):
    assert one.keys() == other.keys() and one
    for name in one:
        assert one[name].keys() == other[name].keys()
        for part in one[name]:
            np.testing.assert_array_equal(one[name][part], other[name][part], f"{name} {part}")


def told_in_order(made, rows):
    """One replica that tells each tick once."""
    for clock, some in enumerate(rows):
        made.submit_report(Report("one", clock, [Tick(clock + 1, clock, {STREAM: some.sum(0)})]), 0.0)
    return made


@cache
def alone():
    """What is right: the state and the verdict of a monitor with one replica, to which nothing happened."""
    with TemporaryDirectory() as folder:
        made = told_in_order(begun(Path(folder)), drawn())
        return state(made), made.compute_verdict(STREAM)


def ledger(made):
    """Plain data of it."""
    waiting = {clock: {name: row.tolist() for name, row in rows.items()} for clock, rows in made.ledger.waiting.items()}
    return replace(made.ledger, waiting=waiting)


def delivered(made, told, rng, crash=lambda made: made):
    """Reports in any order that replicas can send them: lost, sent again, answered and the answer lost."""
    taken = dict.fromkeys(told, 0)
    known_of = dict.fromkeys(told, 0)  # ticks that a replica has finished
    for name in told:  # each says that it is there before any tick is closed
        made.submit_report(Report(name, -1, []), 0.0)
    while any(taken[name] < len(mine) for name, mine in told.items()):
        made = crash(made)
        name = rng.choice([*told])
        mine = told[name]
        known_of[name] = int(min(len(mine), known_of[name] + rng.integers(0, 4)))
        sent = mine[taken[name] : known_of[name]]
        clock = TICKS if known_of[name] == len(mine) else mine[known_of[name]].clock - 1
        fate = rng.choice(["arrives", "is lost", "answer is lost", "arrives twice"])
        if fate == "is lost":
            continue
        report = Report(str(name), clock, sent)
        for _ in range(2 if fate == "arrives twice" else 1):
            number = made.submit_report(report, 0.0)
        if fate != "answer is lost":
            taken[name] = number
    for name in told:
        made.submit_report(Report(name, TICKS, []), 0.0)
    return made


def without_delivery(verdict):
    return {name: value for name, value in verdict.items() if name not in ("replicas", "ticks")}


def test_a_drift_is_told_once_and_its_verdict_is_json(rows, tmp_path):
    made = told_in_order(begun(tmp_path), rows)
    assert [one["event"] for one in made.events] == ["alarm"] and made.unsent_alarms == made.events
    found = made.compute_verdict(STREAM)
    assert found["state"] == "drift" and found["cause"] == "exposure" and found["images"] == TICKS * EACH
    assert json.loads(json.dumps([found, made.events], allow_nan=False)) == [found, made.events]
    assert found["ticks"] == {"lost": 0, "late": 0, "twice": 0} and found["replicas"] == 1


@settings(max_examples=12, deadline=None, derandomize=True)
@given(replicas=st.sampled_from([1, 2, 4, 8]), seed=st.integers(0, 2**32 - 1))
def test_however_requests_are_spread_and_reports_delivered_watches_are_the_same(replicas, seed):
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        made = delivered(begun(Path(folder)), ticks(drawn(), replicas, rng), rng)
    same(state(made), alone()[0])
    assert without_delivery(made.compute_verdict(STREAM)) == without_delivery(alone()[1])
    assert made.ledger.lost == made.ledger.late == made.ledger.died == 0


@settings(max_examples=8, deadline=None, derandomize=True)
@given(replicas=st.sampled_from([1, 3]), every=st.sampled_from([1, 4, 200]), seed=st.integers(0, 2**32 - 1))
def test_a_monitor_that_dies_at_any_time_goes_on_where_it_was(replicas, every, seed):
    rng, folder = np.random.default_rng(seed), TemporaryDirectory()

    def crash(made):
        if rng.random() > 0.3:
            return made
        anew = Monitor(Path(folder.name), ASKED)
        assert anew.events == made.events and ledger(anew) == ledger(made) and not anew.unsent_alarms
        if made.detectors:
            same(state(anew), state(made))
        return anew

    with folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ENTRIES_PER_SNAPSHOT", every)  # records between snapshots
        made = delivered(begun(Path(folder.name)), ticks(drawn(), replicas, rng), rng, crash)
    same(state(made), alone()[0])
    assert without_delivery(made.compute_verdict(STREAM)) == without_delivery(alone()[1])
    assert made.ledger.lost == 0


def test_a_last_record_cut_off_at_any_byte_is_taken_again_and_counts_once(tmp_path):
    made = Monitor(tmp_path / "whole", ASKED)  # of no model: only what was taken matters
    first, last = (Report("one", clock, [Tick(clock + 1, 5, {STREAM: np.arange(4)})]) for clock in (0, 1))
    made.submit_report(Report("two", 0, []), 0.0)
    made.submit_report(first, 0.0)
    (journal,) = (tmp_path / "whole").glob("journal-*")
    before = journal.stat().st_size
    made.submit_report(last, 0.0)
    for size in range(before, journal.stat().st_size):
        cut = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", cut)
        os.truncate(cut / journal.name, size)
        anew = Monitor(cut, ASKED)
        assert anew.ledger.replicas["one"].taken == 1 and not anew.events
        assert anew.submit_report(last, 0.0) == 2 and anew.ledger.twice == 0
        assert ledger(anew) == ledger(made) and anew.ledger.waiting[5][STREAM].tolist() == [0, 2, 4, 6]
        assert (cut / journal.name).read_bytes() == journal.read_bytes()
        shutil.rmtree(cut)


def passed(count):
    return shapes_profile().baseline.layout.pack_unobserved(count)


def tick(number, clock, count=1):
    return Tick(number, clock, {STREAM: passed(count)})


def test_a_death_is_an_event_and_the_state_after_it_is_kept(tmp_path):
    made = begun(tmp_path)
    made.submit_report(Report("a", 1, [tick(1, 1)]), 0.0)
    made.submit_report(Report("b", 1, [tick(1, 1)]), 0.0)
    made.submit_report(Report("a", 60, [tick(2, 60)]), 60.0)
    assert [one["event"] for one in made.events] == ["replica lost"] and made.events[0]["ticks"] == 1
    assert ledger(Monitor(tmp_path, ASKED)) == ledger(made) and made.compute_verdict(STREAM)["ticks"]["lost"] == 1


def test_replicas_were_not_silent_while_the_monitor_was_dead(tmp_path):
    made = begun(tmp_path)
    made.submit_report(Report("a", 1, [tick(1, 1)]), 0.0)
    made.submit_report(Report("b", 1, [tick(1, 1)]), 0.0)
    anew = Monitor(tmp_path, ASKED)
    anew.resume(1000.0)
    anew.submit_report(Report("a", 1, []), 1000.1)
    assert anew.ledger.died == 0 and anew.events[-1]["event"] == "monitor restarted"
    fresh = Monitor(tmp_path / "fresh", ASKED)
    fresh.resume(0.0)
    assert fresh.events == []


def test_each_source_has_charts_of_its_own_and_all_have_those_of_the_model(rows, tmp_path):
    names = [STREAM, f"{STREAM}\nleft", f"{STREAM}\nright"]
    rng = np.random.default_rng(0)
    made = delivered(begun(tmp_path), ticks(rows, 2, rng, names), rng)
    assert set(made.detectors) == {STREAM, f"{STREAM}/left", f"{STREAM}/right"}
    judged = made.compute_verdict(STREAM)
    assert judged["images"] == TICKS * EACH and set(judged["sources"]) == {"left", "right"}
    assert all(watch.run_length == 2 * ASKED for watch in made.detectors.values())
    counted = {name: watch.answered_images for name, watch in made.detectors.items()}
    assert 0.5 * TICKS * EACH < counted[f"{STREAM}/left"] + counted[f"{STREAM}/right"] < 0.8 * TICKS * EACH
    plain = told_in_order(begun(tmp_path / "alone"), rows)
    one, other = (made_.detectors[STREAM].state_arrays() for made_ in (made, plain))
    for name in ("rows", "ends", "asked", "wealth", "runs.share", "charts.rest"):
        np.testing.assert_array_equal(one[name], other[name], name)


def test_what_is_said_of_sources_is_the_same_after_a_restart(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES_PER_SNAPSHOT", 3)
    made = begun(tmp_path)
    for clock in range(6):
        held = {STREAM: rows[clock].sum(0), f"{STREAM}\nleft": rows[clock + 6].sum(0)}
        made.submit_report(Report("one", clock, [Tick(clock + 1, clock, held)]), 0.0)
    assert made.journal.entry_count == 0  # all of it is in the snapshot
    assert Monitor(tmp_path, ASKED).compute_verdict(STREAM) == made.compute_verdict(STREAM)


def test_sources_beyond_a_number_share_charts(tmp_path):
    made = begun(tmp_path)
    count = MAX_SOURCES + 8
    held = {f"{STREAM}\ncamera {place:02}": passed(1) for place in range(count)}
    made.submit_report(Report("a", 1, [Tick(1, 1, held)]), 0.0)
    made.submit_report(Report("a", 2, [Tick(2, 2, held)]), 0.0)
    assert len(made.detectors) == 1 + MAX_SOURCES + 1
    assert (
        made.detectors[f"{STREAM}/{OTHER_SOURCES}"].pending[0] == 16 and made.detectors[STREAM].pending[0] == 2 * count
    )
    assert made.detectors[f"{STREAM}/camera 05"].pending[0] == 2
    assert {one.replace(f"{STREAM}/", "") for one in Monitor(tmp_path, ASKED).detectors} >= {OTHER_SOURCES, "camera 31"}


def test_a_model_that_is_reset_begins_anew_and_no_other(rows, tmp_path):
    made = begun(tmp_path)
    made.register("toy/10", arrays())
    for name in (STREAM, f"{STREAM}\nleft", "toy/10"):
        made.submit_report(Report(name, 1, [Tick(1, 1, {name: rows[0].sum(0)})], leaves=True), 0.0)
    made.reset(STREAM, 5.0)
    assert [*made.detectors] == ["toy/10"] == [*Monitor(tmp_path, ASKED).detectors]
    assert made.events[-1] == {"event": "reset", "stream": STREAM, "time": 5.0}
    assert made.compute_verdict(STREAM)["state"] == "unknown" and made.compute_verdict(STREAM)["images"] == 0


def test_of_a_model_without_reference_nothing_is_known_and_why_is_said(tmp_path):
    made = Monitor(tmp_path, ASKED)
    assert made.compute_verdict(STREAM)["why"] == "no request was observed"
    made.register(STREAM, {"classes": np.array(CLASSES), "width": np.array(9)})
    made.submit_report(Report("a", 1, [tick(1, 1)]), 0.0)
    for one in (made, Monitor(tmp_path, ASKED)):
        verdict = one.compute_verdict(STREAM)
        assert verdict["state"] == "unknown" and "publish the bundle again" in verdict["why"]
        assert not one.detectors


def test_sums_of_another_layout_are_left_out(rows, tmp_path):
    made = begun(tmp_path)
    made.submit_report(Report("a", 1, [Tick(1, 1, {STREAM: rows[0].sum(0)[:-1]})]), 0.0)
    assert not made.detectors


@pytest.mark.parametrize("damage", ["snapshot", "known", "facts", "form"])
def test_what_cannot_be_read_is_set_aside_and_said(rows, tmp_path, monkeypatch, damage):
    monkeypatch.setattr(module, "ENTRIES_PER_SNAPSHOT", 4)
    told_in_order(begun(tmp_path), rows)
    (snapshot,) = tmp_path.glob("snapshot-*.npz")
    (reference,) = tmp_path.glob("known-*.npz")
    if damage == "snapshot":
        snapshot.write_bytes(snapshot.read_bytes()[:1000])
    elif damage == "known":
        reference.write_bytes(b"")
    else:
        with np.load(snapshot) as held:
            kept = dict(held)
        changed = {"facts": np.array("{")} if damage == "facts" else {"0.charts.scores": np.zeros((1, 2, 3, 5))}
        np.savez(snapshot, **(kept | changed))
    anew = Monitor(tmp_path, ASKED)
    assert [one["event"] for one in anew.events] == ["state lost"] and not anew.detectors
    assert "set aside" in anew.events[0]["why"] and not anew.ledger.replicas
    assert [path.name.startswith("set-aside-") for path in tmp_path.iterdir()] == [True]
    anew.register(STREAM, arrays())
    told_in_order(anew, rows)
    assert anew.compute_verdict(STREAM)["state"] == "drift"
    assert [one["event"] for one in Monitor(tmp_path, ASKED).events][-1] == "alarm"


def test_other_files_in_its_folder_are_nothing_to_it(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES_PER_SNAPSHOT", 4)
    made = begun(tmp_path)
    told_in_order(made, rows)
    for name in ("snapshot-1 (copy).npz", "snapshot-abc.npz", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert ledger(Monitor(tmp_path, ASKED)) == ledger(made)


def test_bytes_that_no_reader_understands_and_folders_in_place_of_files_are_set_aside_too(rows, tmp_path):
    np.savez(tmp_path / "snapshot-1.npz", facts=np.array("{}"))
    data = bytearray((tmp_path / "snapshot-1.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 200
    (tmp_path / "snapshot-1.npz").write_bytes(data)
    (tmp_path / "known-zz.npz").mkdir()
    anew = Monitor(tmp_path, ASKED)
    assert [one["event"] for one in anew.events] == ["state lost"]
    anew.register(STREAM, arrays())
    told_in_order(anew, rows)
    assert anew.compute_verdict(STREAM)["state"] == "drift"


def test_a_folder_that_someone_took_away_is_made_again_and_what_is_gone_is_said(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES_PER_SNAPSHOT", 4)
    made = begun(tmp_path / "state")
    taken = made.submit_report(Report("a", 1, [tick(1, 1)]), 0.0)
    shutil.rmtree(tmp_path / "state")
    for number in range(taken + 1, 8):
        made.submit_report(Report("a", number, [tick(number, number)]), float(number))
    assert made.ledger.replicas["a"].taken == 7
    anew = Monitor(tmp_path / "state", ASKED)
    assert [one["event"] for one in anew.events] == ["state lost"] and not anew.detectors
    assert anew.ledger.replicas["a"].taken == 7


def test_replicas_that_report_seldom_are_not_taken_for_dead(tmp_path):
    made = Monitor(tmp_path, ASKED, tick_seconds=60.0)
    made.register(STREAM, arrays())
    for turn in range(1, 6):
        for name in "ab":
            made.submit_report(Report(name, 60_000 * turn, [tick(turn, 60_000 * turn)]), 60.0 * turn)
    assert not made.ledger.died and not made.events


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or not mount or not unmount:
        pytest.skip("a small disk takes the right to mount one")
    done = subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr}")
    yield place
    subprocess.run([unmount, place], check=True)


def test_a_full_disk_refuses_a_report_and_takes_it_once_there_is_room(rows, small_disk):
    made = Monitor(small_disk, ASKED)
    made.profiles[STREAM] = shapes_profile()  # its file alone would fill the disk
    reports = [Report("a", clock, [Tick(clock + 1, clock, {STREAM: rows[clock].sum(0)})]) for clock in range(3)]
    made.submit_report(reports[0], 0.0)
    (journal,) = small_disk.glob("journal-*")
    size = journal.stat().st_size
    filling = small_disk / "filling"
    with pytest.raises(OSError, match="No space"), filling.open("wb", 0) as file:
        while True:
            file.write(bytes(512))
    held = state(made)
    with pytest.raises(OSError, match="No space"):
        for number in range(2, 20):  # what is left of a page that is begun still takes some
            size = journal.stat().st_size
            made.submit_report(replace(reports[1], ticks=[replace(reports[1].ticks[0], number=number)]), 0.0)
            held = state(made)
    assert journal.stat().st_size == size
    same(state(made), held)
    last = made.ledger.replicas["a"].taken
    filling.unlink()
    assert made.submit_report(Report("a", 2, [Tick(last + 1, 2, {STREAM: rows[2].sum(0)})]), 0.0) == last + 1
    anew = Monitor(small_disk, ASKED)
    assert ledger(anew) == ledger(made) and anew.journal.entry_count == last + 1
