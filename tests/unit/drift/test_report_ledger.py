import numpy as np

from equipoise.drift.monitor.report_ledger import MAX_DEPARTED_REPLICAS, ReportLedger, Tick
from equipoise.drift.monitor.stream_key import StreamKey

STREAM = StreamKey("toy", "1")


def build_tick(number, clock, count=1):
    return Tick(number, clock, {STREAM: np.array([count])})


def read_counts_by_clock(closed_ticks):
    return {clock: int(rows[STREAM][0]) for clock, rows in closed_ticks}


def test_tick_is_closed_once_every_replica_has_reported_it():
    ledger = ReportLedger()
    ledger.add_report("a", [build_tick(1, 10, 2)], 10, 0.0)
    ledger.add_report("b", [], 9, 0.0)
    assert ledger.pop_closed_ticks(0.0) == []
    assert ledger.add_report("b", [build_tick(1, 10, 5), build_tick(2, 11)], 11, 0.0) == 2
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {10: 7} and ledger.closed == 10
    ledger.add_report("a", [], 11, 0.0, leaves=True)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {11: 1} and [*ledger.replicas] == ["b"]


def test_late_tick_counts_in_the_next_one_and_is_recorded_as_late():
    ledger = ReportLedger()
    ledger.add_report("a", [build_tick(1, 10)], 10, 0.0)
    ledger.pop_closed_ticks(0.0)
    ledger.add_report("new", [build_tick(1, 8, 4), build_tick(2, 10, 5), build_tick(3, 11, 6)], 11, 0.0)
    ledger.add_report("a", [], 11, 0.0)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {11: 15} and ledger.late == 2 and ledger.lost == 0


def test_silent_replica_is_no_longer_waited_for_and_counts_as_dead():
    ledger = ReportLedger()
    ledger.add_report("a", [build_tick(1, 10)], 10, 0.0)
    ledger.add_report("b", [build_tick(1, 9)], 9, 0.0)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {9: 1}
    ledger.add_report("a", [], 10, 10.0)
    assert ledger.pop_closed_ticks(10.0) == [] and not ledger.died
    ledger.add_report("a", [], 10, 10.1)
    assert read_counts_by_clock(ledger.pop_closed_ticks(10.1)) == {10: 1}
    assert (ledger.died, ledger.lost) == (1, 1) and [*ledger.replicas] == ["a"]


def test_ticks_never_sent_are_lost_and_repeated_ones_do_not_count():
    ledger = ReportLedger()
    assert ledger.add_report("a", [build_tick(1, 1), build_tick(4, 4)], 4, 0.0) == 4
    assert ledger.add_report("a", [build_tick(4, 4), build_tick(2, 2)], 4, 0.0) == 4
    assert (ledger.lost, ledger.twice) == (2, 2) and sum(
        read_counts_by_clock(ledger.pop_closed_ticks(0.0)).values()
    ) == 2


def test_replica_taken_for_dead_continues_where_it_was():
    ledger = ReportLedger()
    ledger.add_report("a", [build_tick(number, number) for number in (1, 2, 3)], 3, 0.0)
    ledger.add_report("b", [], 60, 60.0)
    assert sum(read_counts_by_clock(ledger.pop_closed_ticks(60.0)).values()) == 3 and ledger.died == 1
    assert ledger.add_report("a", [build_tick(3, 3), build_tick(4, 55, 5)], 60, 60.1) == 4
    for name in "ab":
        ledger.add_report(name, [], 61, 60.2)
    assert read_counts_by_clock(ledger.pop_closed_ticks(60.2)) == {61: 5}
    assert (ledger.twice, ledger.late, ledger.lost, ledger.died) == (1, 1, 0, 1)


def test_ticks_acknowledged_by_another_ledger_are_not_lost():
    ledger = ReportLedger()
    assert ledger.add_report("a", [build_tick(501, 7), build_tick(502, 8)], 8, 0.0, confirmed=500) == 502
    assert ledger.add_report("b", [build_tick(4, 8)], 8, 0.0, confirmed=2) == 4
    assert ledger.lost == 1  # the third tick of replica b


def test_last_report_received_twice_counts_once():
    ledger = ReportLedger()
    ledger.add_report("b", [], -1, 0.0)
    last = [build_tick(1, 1), build_tick(2, 2)]
    assert ledger.add_report("a", last, 2, 0.0, leaves=True) == ledger.add_report("a", last, 2, 0.0, leaves=True) == 2
    assert (ledger.twice, ledger.lost) == (2, 0) and [*ledger.replicas] == ["b"]
    ledger.add_report("b", [], 2, 0.0)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {1: 1, 2: 1}


def test_only_the_latest_departed_replicas_are_remembered():
    ledger = ReportLedger()
    names = [f"replica {index}" for index in range(MAX_DEPARTED_REPLICAS + 1)]
    for name in names:
        ledger.add_report(name, [build_tick(1, 1)], 1, 0.0, leaves=True)
    assert [*ledger.gone] == names[1:] and len(ledger.gone) == 256
    assert ledger.add_report(names[1], [], 1, 0.0) == 1  # remembered
    assert ledger.add_report(names[0], [], 1, 0.0) == 0 and ledger.lost == 0


def test_only_the_latest_dead_replicas_are_remembered():
    ledger = ReportLedger(timeout_seconds=5.0)
    names = [f"replica {index}" for index in range(MAX_DEPARTED_REPLICAS + 2)]
    for name in names:
        ledger.add_report(name, [], 1, 0.0)
    ledger.pop_closed_ticks(5.0)
    assert ledger.died == 0
    ledger.pop_closed_ticks(5.5)
    assert ledger.died == ledger.lost == 258 and ledger.dead == names[2:] == [*ledger.gone]


def test_new_replica_delays_only_ticks_after_the_last_closed_one():
    ledger = ReportLedger()
    ledger.add_report("a", [build_tick(1, 10)], 10, 0.0)
    ledger.pop_closed_ticks(0.0)
    ledger.add_report("new", [], 3, 0.0)  # a clock behind the closed tick
    ledger.add_report("a", [build_tick(2, 11)], 11, 0.0)
    assert ledger.pop_closed_ticks(0.0) == [] and ledger.closed == 10
    ledger.add_report("new", [], 11, 0.0)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {11: 1}


def test_ledger_without_replicas_closes_all_that_waits():
    ledger = ReportLedger()
    assert ledger.pop_closed_ticks(0.0) == [] and ledger.closed == -1
    ledger.add_report("a", [build_tick(1, 0, 2), build_tick(2, 4, 3)], 4, 0.0, leaves=True)
    assert read_counts_by_clock(ledger.pop_closed_ticks(0.0)) == {0: 2, 4: 3} and ledger.closed == 4
