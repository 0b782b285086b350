"""Reports of a replica while the drift monitor is away: ticks are sent until they are taken, and none counts twice."""

import asyncio
import logging
import time

import pytest

from equipoise.drift.monitor.stream_key import StreamKey
from services.monitoring.drift_observer import DriftObserver
from services.monitoring.metrics import Metrics
from tests.support.drift_data import CLASSES
from tests.support.local_monitor import LocalMonitor
from tests.support.quick_profile import build_quick_profile
from tests.support.served_batches import build_batch, build_version
from tests.support.stepped_loop import run_pending, run_stepped

STREAM = StreamKey("shapes", "v1")


@pytest.fixture
def monitor(tmp_path):
    return LocalMonitor(tmp_path / "state")


@pytest.fixture
def observer(monitor):
    """Return an observer that has no time to observe, so that it only counts."""
    drift_observer = DriftObserver(Metrics(), monitor, 1.0)
    drift_observer.credit_seconds = -1e6
    return drift_observer


def answer_batch(observer, count=1):
    version = build_version("v1", [str(index) for index in range(CLASSES)], build_quick_profile())
    observer.on_batch("shapes", build_batch(version, count, (3, 32, 32)))


def report(observer):
    asyncio.run(observer.send_report())


def fail_to_report(observer, monitor):
    monitor.is_away = True
    with pytest.raises(ConnectionError):
        report(observer)
    monitor.is_away = False


def read_ticks(sent):
    return [tick.number for tick in sent.ticks]


def count_images(sent):
    """Return the images of each tick of a report."""
    return [int(tick.rows[STREAM][0]) for tick in sent.ticks]


def test_ticks_are_kept_until_the_monitor_has_taken_them(observer, monitor):
    answer_batch(observer, 5)
    report(observer)
    for count in (1, 2, 3):
        answer_batch(observer, count)
        fail_to_report(observer, monitor)
    answer_batch(observer, 4)
    report(observer)
    report(observer)
    assert [read_ticks(sent) for sent in monitor.reports] == [[1], [2, 3, 4, 5], []]
    assert count_images(monitor.reports[1]) == [1, 2, 3, 4]
    assert [sent.confirmed for sent in monitor.reports] == [0, 1, 5]
    assert len({sent.replica for sent in monitor.reports}) == 1
    assert (monitor.monitor.ledger.lost, monitor.monitor.ledger.twice) == (0, 0)


def test_only_the_ticks_that_were_taken_are_forgotten(observer, monitor):
    for _ in range(3):
        answer_batch(observer)
        fail_to_report(observer, monitor)
    report(observer)
    monitor.monitor.ledger.replicas[observer.replica_id].taken = 1  # of a monitor restored from an older state
    answer_batch(observer)
    fail_to_report(observer, monitor)
    report(observer)
    assert [read_ticks(sent) for sent in monitor.reports] == [[1, 2, 3], [4]]
    assert monitor.reports[1].confirmed == 3


def test_tick_without_images_has_no_number(observer, monitor):
    report(observer)
    answer_batch(observer)
    report(observer)
    report(observer)
    assert [read_ticks(sent) for sent in monitor.reports] == [[], [1], []]


def test_latest_600_ticks_are_kept_and_the_monitor_notices_the_others(observer, monitor):
    answer_batch(observer)
    report(observer)
    for count in range(1, 604):
        answer_batch(observer, 1 + count % 2)
        fail_to_report(observer, monitor)
    report(observer)
    assert read_ticks(monitor.reports[-1]) == [*range(5, 605)]
    assert monitor.monitor.ledger.lost == 3


def test_report_is_sent_at_each_tick_of_the_clock_even_after_failures(observer, monitor, caplog):
    observer.tick_seconds = 1.5 * time.time()  # so that two thirds of the first tick have passed

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(observer.report_every_tick())
        await run_pending()
        await loop.advance(observer.tick_seconds / 3 - 600)
        assert not monitor.reports
        await loop.advance(1200)
        assert len(monitor.reports) == 1
        monitor.is_away = True
        answer_batch(observer)
        await loop.advance(observer.tick_seconds / 3 + 600)
        monitor.is_away = False
        assert len(monitor.reports) == 1
        await loop.advance(observer.tick_seconds / 3 + 600)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level(logging.WARNING):
        run_stepped(main())
    assert [read_ticks(sent) for sent in monitor.reports] == [[], [1]]
    (record,) = [record for record in caplog.records if record.name.endswith("drift_observer")]
    assert "1 ticks" in record.getMessage() and isinstance(record.exc_info[1], ConnectionError)
