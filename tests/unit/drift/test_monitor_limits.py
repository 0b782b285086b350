"""What a drift monitor keeps: a bounded log of events, and snapshots after so many entries."""

from equipoise.drift.monitor.monitor import MAX_EVENTS, Monitor, Report
from tests.support.monitor_reports import RUN_LENGTH_REQUESTS, STREAM


def test_only_the_latest_events_are_kept(tmp_path):
    monitor = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    for second in range(MAX_EVENTS + 2):
        monitor.reset(STREAM, float(second))
    assert [event.time for event in monitor.events] == [float(second) for second in range(2, 502)]
    assert Monitor(tmp_path, RUN_LENGTH_REQUESTS).events == monitor.events


def test_snapshot_is_written_with_the_last_of_its_entries(tmp_path):
    monitor = Monitor(tmp_path, RUN_LENGTH_REQUESTS, entries_per_snapshot=3)
    counts = []
    for clock in range(4):
        monitor.submit_report(Report("a", clock, []), float(clock))
        counts.append((monitor.journal.entry_count, monitor.journal.latest_generation()))
    assert counts == [(1, 0), (2, 0), (0, 1), (1, 1)]
    assert Monitor(tmp_path, RUN_LENGTH_REQUESTS).ledger.replicas["a"].heard == 3.0


def test_snapshots_are_rare_by_default(tmp_path):
    monitor = Monitor(tmp_path, RUN_LENGTH_REQUESTS)
    for clock in range(199):
        monitor.submit_report(Report("a", clock, []), float(clock))
    assert monitor.journal.latest_generation() == 0
    monitor.submit_report(Report("a", 199, []), 199.0)
    assert monitor.journal.latest_generation() == 1 and monitor.journal.entry_count == 0
