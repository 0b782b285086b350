import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict, TickCounts
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.drift.monitor.monitor import OTHER_SOURCES, Monitor, Report
from equipoise.drift.monitor.report_ledger import Tick
from equipoise.drift.monitor.stream_key import StreamKey
from tests.support.drift_data import shapes_profile
from tests.support.monitor_reports import (
    IMAGES_PER_TICK,
    RUN_LENGTH_REQUESTS,
    STREAM,
    TICK_COUNT,
    assert_equal_states,
    build_reference_arrays,
    compute_image_rows,
    copy_ledger,
    deliver_reports,
    read_detector_states,
    report_in_order,
    spread_over_replicas,
    start_monitor,
)
from tests.support.small_disk import mount_small_disk


@pytest.fixture
def image_rows():
    return compute_image_rows()


def test_drift_raises_one_alarm_and_its_verdict_is_json(image_rows, tmp_path):
    monitor = report_in_order(start_monitor(tmp_path), image_rows)
    assert [event.event for event in monitor.events] == ["alarm"] and monitor.unsent_alarms == monitor.events
    verdict = monitor.compute_verdict(STREAM)
    assert verdict.state == "drift" and verdict.cause == "exposure" and verdict.images == TICK_COUNT * IMAGES_PER_TICK
    assert StreamVerdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    events = json.loads(json.dumps([event.to_json() for event in monitor.events], allow_nan=False))
    assert [*map(DriftEvent.from_json, events)] == monitor.events
    assert verdict.ticks == TickCounts(lost=0, late=0, twice=0) and verdict.replicas == 1


def test_event_of_a_lost_replica_is_the_same_after_json():
    event = DriftEvent(event="replica lost", stream="toy 1", time=5.0, why="no report for 10 s", ticks=3)
    assert event.to_json() == {
        "event": "replica lost", "stream": "toy 1", "time": 5.0, "why": "no report for 10 s", "ticks": 3
    }  # fmt: skip
    assert DriftEvent.from_json(event.to_json()) == event
    assert DriftEvent(event="reset", stream="toy 1", time=5.0).to_json().keys() == {"event", "stream", "time"}


def test_last_entry_truncated_at_any_byte_is_accepted_again_and_counts_once(tmp_path):
    monitor = Monitor(tmp_path / "whole", RUN_LENGTH_REQUESTS)  # without a reference: only the ledger matters
    first, last = (Report("one", clock, [Tick(clock + 1, 5, {STREAM: np.arange(4)})]) for clock in (0, 1))
    monitor.submit_report(Report("two", 0, []), 0.0)
    monitor.submit_report(first, 0.0)
    (journal,) = (tmp_path / "whole").glob("journal-*")
    size_before = journal.stat().st_size
    monitor.submit_report(last, 0.0)
    for size in range(size_before, journal.stat().st_size):
        folder = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", folder)
        os.truncate(folder / journal.name, size)
        restarted = Monitor(folder, RUN_LENGTH_REQUESTS)
        assert restarted.ledger.replicas["one"].taken == 1 and not restarted.events
        assert restarted.submit_report(last, 0.0) == 2 and restarted.ledger.twice == 0
        assert copy_ledger(restarted) == copy_ledger(monitor) and restarted.ledger.waiting[5][STREAM].tolist() == [
            0,
            2,
            4,
            6,
        ]
        assert (folder / journal.name).read_bytes() == journal.read_bytes()
        shutil.rmtree(folder)


def build_unobserved_row(count):
    return shapes_profile().baseline.layout.pack_unobserved(count)


def build_tick(number, clock, count=1):
    return Tick(number, clock, {STREAM: build_unobserved_row(count)})


def test_death_of_a_replica_is_an_event_and_survives_a_restart(tmp_path):
    monitor = start_monitor(tmp_path)
    monitor.submit_report(Report("a", 1, [build_tick(1, 1)]), 0.0)
    monitor.submit_report(Report("b", 1, [build_tick(1, 1)]), 0.0)
    monitor.submit_report(Report("a", 60, [build_tick(2, 60)]), 60.0)
    assert [event.event for event in monitor.events] == ["replica lost"] and monitor.events[0].ticks == 1
    assert (
        copy_ledger(Monitor(tmp_path, RUN_LENGTH_REQUESTS)) == copy_ledger(monitor)
        and monitor.compute_verdict(STREAM).ticks.lost == 1
    )


def test_replicas_do_not_time_out_while_the_monitor_is_down(tmp_path):
    monitor = start_monitor(tmp_path)
    monitor.submit_report(Report("a", 1, [build_tick(1, 1)]), 0.0)
    monitor.submit_report(Report("b", 1, [build_tick(1, 1)]), 0.0)
    restarted = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    restarted.resume(1000.0)
    restarted.submit_report(Report("a", 1, []), 1000.1)
    assert restarted.ledger.died == 0 and restarted.events[-1].event == "monitor restarted"
    fresh = Monitor(tmp_path / "fresh", RUN_LENGTH_REQUESTS)
    fresh.resume(0.0)
    assert fresh.events == []


def test_each_source_has_its_own_charts_and_the_model_has_charts_of_all_requests(image_rows, tmp_path):
    left, right = (STREAM._replace(source=source) for source in ("left", "right"))
    rng = np.random.default_rng(0)
    monitor = deliver_reports(
        start_monitor(tmp_path), spread_over_replicas(image_rows, 2, rng, [STREAM, left, right]), rng
    )
    assert set(monitor.detectors) == {STREAM, left, right}
    verdict = monitor.compute_verdict(STREAM)
    assert verdict.images == TICK_COUNT * IMAGES_PER_TICK and set(verdict.sources) == {"left", "right"}
    assert all(detector.run_length == 2 * RUN_LENGTH_REQUESTS for detector in monitor.detectors.values())
    counts = {name: detector.answered_images for name, detector in monitor.detectors.items()}
    assert 0.5 * TICK_COUNT * IMAGES_PER_TICK < counts[left] + counts[right] < 0.8 * TICK_COUNT * IMAGES_PER_TICK
    without_sources = report_in_order(start_monitor(tmp_path / "alone"), image_rows)
    state, expected = (each.detectors[STREAM].state_arrays() for each in (monitor, without_sources))
    for name in ("rows", "ends", "asked", "wealth", "runs.share", "charts.rest"):
        np.testing.assert_array_equal(state[name], expected[name], name)


def test_verdict_with_sources_is_the_same_after_a_restart(image_rows, tmp_path):
    monitor = start_monitor(tmp_path, entries_per_snapshot=3)
    for clock in range(6):
        sums = {STREAM: image_rows[clock].sum(0), STREAM._replace(source="left"): image_rows[clock + 6].sum(0)}
        monitor.submit_report(Report("one", clock, [Tick(clock + 1, clock, sums)]), 0.0)
    assert monitor.journal.entry_count == 0  # the snapshot holds everything
    assert Monitor(tmp_path, RUN_LENGTH_REQUESTS).compute_verdict(STREAM) == monitor.compute_verdict(STREAM)


def test_sources_beyond_the_limit_share_charts(tmp_path):
    monitor = start_monitor(tmp_path)
    count = 32 + 8
    sums = {STREAM._replace(source=f"camera {index:02}"): build_unobserved_row(1) for index in range(count)}
    monitor.submit_report(Report("a", 1, [Tick(1, 1, sums)]), 0.0)
    monitor.submit_report(Report("a", 2, [Tick(2, 2, sums)]), 0.0)
    assert len(monitor.detectors) == 1 + 32 + 1
    assert (
        monitor.detectors[STREAM._replace(source=OTHER_SOURCES)].pending[0] == 16
        and monitor.detectors[STREAM].pending[0] == 2 * count
    )
    assert monitor.detectors[STREAM._replace(source="camera 05")].pending[0] == 2
    assert {key.source for key in Monitor(tmp_path, RUN_LENGTH_REQUESTS).detectors} >= {
        OTHER_SOURCES,
        "camera 31",
    }


@pytest.mark.parametrize(("tick_seconds", "timeout_seconds"), [(1.0, 10.0), (20.0, 60.0)])
def test_replica_is_dead_after_ten_seconds_or_three_ticks(tmp_path, tick_seconds, timeout_seconds):
    monitor = start_monitor(tmp_path, tick_seconds=tick_seconds)
    for seconds, died in ((timeout_seconds, 0), (timeout_seconds + 0.1, 1)):
        monitor.submit_report(Report("a", 0, []), 0.0)
        monitor.submit_report(Report("b", 0, []), seconds)
        assert monitor.ledger.died == died


def test_reset_forgets_one_model_and_no_other(image_rows, tmp_path):
    monitor = start_monitor(tmp_path)
    other = StreamKey("toy", "10")
    monitor.register(other, build_reference_arrays())
    for key in (STREAM, STREAM._replace(source="left"), other):
        monitor.submit_report(Report(str(key), 1, [Tick(1, 1, {key: image_rows[0].sum(0)})], leaves=True), 0.0)
    monitor.reset(STREAM, 5.0)
    assert [*monitor.detectors] == [other] == [*Monitor(tmp_path, RUN_LENGTH_REQUESTS).detectors]
    assert monitor.events[-1] == DriftEvent(event="reset", stream=str(STREAM), time=5.0)
    assert monitor.compute_verdict(STREAM).state == "unknown" and monitor.compute_verdict(STREAM).images == 0


def test_charts_of_a_model_are_empty_before_its_first_request(tmp_path):
    history = start_monitor(tmp_path).chart_history(STREAM)
    assert history.image_numbers == [] and "luminance" in history.charts
    assert Monitor(tmp_path / "no-model", RUN_LENGTH_REQUESTS).chart_history(STREAM) == ChartHistory()


def test_model_without_reference_gives_verdict_unknown_with_the_reason(tmp_path):
    monitor = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    assert monitor.compute_verdict(STREAM).why == "no request was observed"
    monitor.register(STREAM, {"classes": np.array([*"0123"]), "width": np.array(9)})
    monitor.submit_report(Report("a", 1, [build_tick(1, 1)]), 0.0)
    for each in (monitor, Monitor(tmp_path, RUN_LENGTH_REQUESTS)):
        verdict = each.compute_verdict(STREAM)
        assert verdict.state == "unknown" and "publish the bundle again" in verdict.why
        assert not each.detectors


def test_sums_of_another_layout_are_ignored(image_rows, tmp_path):
    monitor = start_monitor(tmp_path)
    monitor.submit_report(Report("a", 1, [Tick(1, 1, {STREAM: image_rows[0].sum(0)[:-1]})]), 0.0)
    assert not monitor.detectors


@pytest.mark.parametrize("damage", ["truncated snapshot", "empty profile", "invalid facts", "wrong shape"])
def test_unreadable_state_is_set_aside_and_recorded_as_an_event(image_rows, tmp_path, damage):
    report_in_order(start_monitor(tmp_path, entries_per_snapshot=4), image_rows)
    (snapshot,) = tmp_path.glob("snapshot-*.npz")
    (profile,) = tmp_path.glob("known-*.npz")
    if damage == "truncated snapshot":
        snapshot.write_bytes(snapshot.read_bytes()[:1000])
    elif damage == "empty profile":
        profile.write_bytes(b"")
    else:
        with np.load(snapshot) as file:
            arrays = dict(file)
        changed = {"facts": np.array("{")} if damage == "invalid facts" else {"0.charts.scores": np.zeros((1, 2, 3, 5))}
        np.savez(snapshot, **(arrays | changed))
    restarted = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    assert [event.event for event in restarted.events] == ["state lost"] and not restarted.detectors
    assert "set aside" in restarted.events[0].why and not restarted.ledger.replicas
    assert [path.name.startswith("set-aside-") for path in tmp_path.iterdir()] == [True]
    restarted.register(STREAM, build_reference_arrays())
    report_in_order(restarted, image_rows)
    assert restarted.compute_verdict(STREAM).state == "drift"
    assert [event.event for event in Monitor(tmp_path, RUN_LENGTH_REQUESTS).events][-1] == "alarm"


def test_unrelated_files_in_the_folder_are_ignored(image_rows, tmp_path):
    monitor = start_monitor(tmp_path, entries_per_snapshot=4)
    report_in_order(monitor, image_rows)
    for name in ("snapshot-1 (copy).npz", "snapshot-abc.npz", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    assert copy_ledger(Monitor(tmp_path, RUN_LENGTH_REQUESTS)) == copy_ledger(monitor)


def test_malformed_archives_and_folders_in_place_of_files_are_set_aside(image_rows, tmp_path):
    np.savez(tmp_path / "snapshot-1.npz", facts=np.array("{}"))
    data = bytearray((tmp_path / "snapshot-1.npz").read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 200
    (tmp_path / "snapshot-1.npz").write_bytes(data)
    (tmp_path / "known-zz.npz").mkdir()
    restarted = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    assert [event.event for event in restarted.events] == ["state lost"]
    restarted.register(STREAM, build_reference_arrays())
    report_in_order(restarted, image_rows)
    assert restarted.compute_verdict(STREAM).state == "drift"


def test_deleted_folder_is_created_again_and_the_loss_is_recorded_as_an_event(image_rows, tmp_path):
    monitor = start_monitor(tmp_path / "state", entries_per_snapshot=4)
    acknowledged = monitor.submit_report(Report("a", 1, [build_tick(1, 1)]), 0.0)
    shutil.rmtree(tmp_path / "state")
    for number in range(acknowledged + 1, 8):
        monitor.submit_report(Report("a", number, [build_tick(number, number)]), float(number))
    assert monitor.ledger.replicas["a"].taken == 7
    restarted = Monitor(tmp_path / "state", RUN_LENGTH_REQUESTS)
    assert [event.event for event in restarted.events] == ["state lost"] and not restarted.detectors
    assert restarted.ledger.replicas["a"].taken == 7


def test_replicas_that_report_rarely_are_not_taken_for_dead(tmp_path):
    monitor = Monitor(tmp_path, RUN_LENGTH_REQUESTS, tick_seconds=60.0)
    monitor.register(STREAM, build_reference_arrays())
    for minute in range(1, 6):
        for name in "ab":
            monitor.submit_report(Report(name, 60_000 * minute, [build_tick(minute, 60_000 * minute)]), 60.0 * minute)
    assert not monitor.ledger.died and not monitor.events


@pytest.fixture
def small_disk(tmp_path):
    with mount_small_disk(tmp_path / "disk", "1m") as folder:
        yield folder


def test_full_disk_refuses_a_report_and_accepts_it_once_there_is_space(image_rows, small_disk):
    monitor = Monitor(small_disk, RUN_LENGTH_REQUESTS)
    monitor.profiles[STREAM] = shapes_profile()  # not registered: the file alone would fill the disk
    reports = [Report("a", clock, [Tick(clock + 1, clock, {STREAM: image_rows[clock].sum(0)})]) for clock in range(3)]
    monitor.submit_report(reports[0], 0.0)
    (journal,) = small_disk.glob("journal-*")
    size = journal.stat().st_size
    filling = small_disk / "filling"
    with pytest.raises(OSError, match="No space"), filling.open("wb", 0) as file:
        while True:
            file.write(bytes(512))
    states = read_detector_states(monitor)
    with pytest.raises(OSError, match="No space"):
        for number in range(2, 20):  # the last page of the journal still has space for some reports
            size = journal.stat().st_size
            monitor.submit_report(replace(reports[1], ticks=[replace(reports[1].ticks[0], number=number)]), 0.0)
            states = read_detector_states(monitor)
    assert journal.stat().st_size == size
    assert_equal_states(read_detector_states(monitor), states)
    last = monitor.ledger.replicas["a"].taken
    filling.unlink()
    assert monitor.submit_report(Report("a", 2, [Tick(last + 1, 2, {STREAM: image_rows[2].sum(0)})]), 0.0) == last + 1
    restarted = Monitor(small_disk, RUN_LENGTH_REQUESTS)
    assert copy_ledger(restarted) == copy_ledger(monitor) and restarted.journal.entry_count == last + 1
