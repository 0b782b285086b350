import numpy as np
import pytest

from equipoise.drift.monitor.entries import ReportEntry
from equipoise.drift.monitor.journal import Journal


def build_entry(clock):
    return ReportEntry(replica="a", clock=clock, leaves=False, confirmed=0, now=0.0, ticks=[])


def test_damaged_entry_and_those_after_it_are_lost_but_none_before(tmp_path):
    journal = Journal(tmp_path)
    for index in range(3):
        journal.append(build_entry(index), bytes([index]) * 10)
    (path,) = tmp_path.glob("journal-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    reopened = Journal(tmp_path)
    assert [entry.clock for entry, _ in reopened.read_entries()] == [0] and reopened.entry_count == 1
    reopened.append(build_entry(3), b"new")
    assert [(entry.clock, rows) for entry, rows in Journal(tmp_path).read_entries()] == [(0, bytes(10)), (3, b"new")]


def test_snapshot_replaces_everything_before_it(tmp_path):
    journal = Journal(tmp_path)
    assert journal.load_snapshot() is None
    for index in range(3):
        journal.append(build_entry(index), b"")
        journal.write_snapshot({"value": np.array(index)})
    journal.append(build_entry(3), b"")
    reopened = Journal(tmp_path)
    assert reopened.load_snapshot()["value"] == 2 and [entry.clock for entry, _ in reopened.read_entries()] == [3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-3", "snapshot-3.npz"]


def test_entry_that_could_not_be_read_back_is_refused_and_leaves_the_others(tmp_path):
    journal = Journal(tmp_path, max_entry_bytes=200)
    journal.append(build_entry(0), bytes(20))
    size = next(tmp_path.glob("journal-*")).stat().st_size
    with pytest.raises(ValueError, match="200"):
        journal.append(build_entry(1), bytes(200))
    assert next(tmp_path.glob("journal-*")).stat().st_size == size and journal.entry_count == 1
    journal.append(build_entry(2), bytes(20))
    assert [entry.clock for entry, _ in Journal(tmp_path, max_entry_bytes=200).read_entries()] == [0, 2]
