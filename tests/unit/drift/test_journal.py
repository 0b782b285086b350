import numpy as np

from equipoise.drift.monitor.journal import Journal


def test_damage_within_a_journal_loses_what_follows_and_nothing_before(tmp_path):
    journal = Journal(tmp_path)
    for place in range(3):
        journal.append({"place": place}, bytes([place]) * 10)
    (path,) = tmp_path.glob("journal-*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    anew = Journal(tmp_path)
    assert [facts["place"] for facts, _ in anew.read_entries()] == [0] and anew.entry_count == 1
    anew.append({"place": 3}, b"new")
    assert [(facts["place"], rows) for facts, rows in Journal(tmp_path).read_entries()] == [(0, bytes(10)), (3, b"new")]


def test_a_snapshot_takes_the_place_of_all_that_came_before(tmp_path):
    journal = Journal(tmp_path)
    assert journal.load_snapshot() is None
    for place in range(3):
        journal.append({"place": place}, b"")
        journal.write_snapshot({"value": np.array(place)})
    journal.append({"place": 3}, b"")
    anew = Journal(tmp_path)
    assert anew.load_snapshot()["value"] == 2 and [facts["place"] for facts, _ in anew.read_entries()] == [3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-3", "snapshot-3.npz"]
