import numpy as np

from equipoise.drift.monitor.report_ledger import REPLICA_TIMEOUT_SECONDS, ReportLedger, Tick


def tick(number, clock, count=1):
    return Tick(number, clock, {"toy/1": np.array([count])})


def all_of(due):
    return {clock: int(rows["toy/1"][0]) for clock, rows in due}


def test_a_tick_is_closed_once_every_replica_has_told_it():
    ledger = ReportLedger()
    ledger.add_report("a", [tick(1, 10, 2)], 10, 0.0)
    ledger.add_report("b", [], 9, 0.0)
    assert ledger.pop_closed_ticks(0.0) == []
    assert ledger.add_report("b", [tick(1, 10, 5), tick(2, 11)], 11, 0.0) == 2
    assert all_of(ledger.pop_closed_ticks(0.0)) == {10: 7} and ledger.closed == 10
    ledger.add_report("a", [], 11, 0.0, leaves=True)
    assert all_of(ledger.pop_closed_ticks(0.0)) == {11: 1} and [*ledger.replicas] == ["b"]


def test_what_comes_too_late_counts_into_the_next_tick_and_is_said():
    ledger = ReportLedger()
    ledger.add_report("a", [tick(1, 10)], 10, 0.0)
    ledger.pop_closed_ticks(0.0)
    ledger.add_report("new", [tick(1, 8, 4), tick(2, 10, 5), tick(3, 11, 6)], 11, 0.0)
    ledger.add_report("a", [], 11, 0.0)
    assert all_of(ledger.pop_closed_ticks(0.0)) == {11: 15} and ledger.late == 2 and ledger.lost == 0


def test_a_replica_that_falls_silent_is_waited_for_no_longer_and_counted_as_a_loss():
    ledger = ReportLedger()
    ledger.add_report("a", [tick(1, 10)], 10, 0.0)
    ledger.add_report("b", [tick(1, 9)], 9, 0.0)
    assert all_of(ledger.pop_closed_ticks(0.0)) == {9: 1}
    ledger.add_report("a", [], 10, REPLICA_TIMEOUT_SECONDS)
    assert ledger.pop_closed_ticks(REPLICA_TIMEOUT_SECONDS) == [] and not ledger.died
    ledger.add_report("a", [], 10, REPLICA_TIMEOUT_SECONDS + 0.1)
    assert all_of(ledger.pop_closed_ticks(REPLICA_TIMEOUT_SECONDS + 0.1)) == {10: 1}
    assert (ledger.died, ledger.lost) == (1, 1) and [*ledger.replicas] == ["a"]


def test_ticks_that_a_replica_never_sends_are_counted_as_lost_and_those_it_repeats_as_nothing():
    ledger = ReportLedger()
    assert ledger.add_report("a", [tick(1, 1), tick(4, 4)], 4, 0.0) == 4
    assert ledger.add_report("a", [tick(4, 4), tick(2, 2)], 4, 0.0) == 4
    assert (ledger.lost, ledger.twice) == (2, 2) and sum(all_of(ledger.pop_closed_ticks(0.0)).values()) == 2


def test_a_replica_that_was_taken_for_dead_goes_on_where_it_was():
    ledger = ReportLedger()
    ledger.add_report("a", [tick(number, number) for number in (1, 2, 3)], 3, 0.0)
    ledger.add_report("b", [], 60, 60.0)
    assert sum(all_of(ledger.pop_closed_ticks(60.0)).values()) == 3 and ledger.died == 1
    assert ledger.add_report("a", [tick(3, 3), tick(4, 55, 5)], 60, 60.1) == 4
    for name in "ab":
        ledger.add_report(name, [], 61, 60.2)
    assert all_of(ledger.pop_closed_ticks(60.2)) == {61: 5}
    assert (ledger.twice, ledger.late, ledger.lost, ledger.died) == (1, 1, 0, 1)


def test_a_replica_that_another_ledger_knew_lost_nothing_that_was_confirmed():
    ledger = ReportLedger()
    assert ledger.add_report("a", [tick(501, 7), tick(502, 8)], 8, 0.0, confirmed=500) == 502
    assert ledger.add_report("b", [tick(4, 8)], 8, 0.0, confirmed=2) == 4
    assert ledger.lost == 1  # b's third


def test_a_last_word_that_is_heard_twice_counts_once():
    ledger = ReportLedger()
    ledger.add_report("b", [], -1, 0.0)
    last = [tick(1, 1), tick(2, 2)]
    assert ledger.add_report("a", last, 2, 0.0, leaves=True) == ledger.add_report("a", last, 2, 0.0, leaves=True) == 2
    assert (ledger.twice, ledger.lost) == (2, 0) and [*ledger.replicas] == ["b"]
    ledger.add_report("b", [], 2, 0.0)
    assert all_of(ledger.pop_closed_ticks(0.0)) == {1: 1, 2: 1}
