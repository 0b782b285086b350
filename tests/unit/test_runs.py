import pytest

from equipoise import runs, store
from equipoise.record import Record
from equipoise.trial import Trial

TRIAL = Trial(workload="digits")


def record(trial):
    return Record(trial=trial, machine={}, laps=[], ended="cap", target=0.9, examples_to_target=None, test=0.5)


def test_a_new_or_empty_folder_holds_nothing(tmp_path):
    assert runs.finished(tmp_path / "new", TRIAL) is None
    assert runs.finished(tmp_path, TRIAL) is None
    assert not (tmp_path / "new").exists()


def test_a_claimed_folder_goes_on_and_a_finished_one_says_so(tmp_path):
    runs.claim(tmp_path, TRIAL)
    assert runs.finished(tmp_path, TRIAL) is None
    store.write_json(tmp_path / "record.json", record(TRIAL).to_json())
    assert runs.finished(tmp_path, TRIAL) == record(TRIAL)


def test_another_trial_is_refused_and_its_difference_named(tmp_path):
    runs.claim(tmp_path, TRIAL)
    with pytest.raises(ValueError, match=r"another trial \(lr is 0\.05, asked 0\.2; seed is 0, asked 3\)"):
        runs.finished(tmp_path, Trial(workload="digits", lr=0.2, seed=3))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="holds no run"):
        runs.finished(tmp_path, TRIAL)


def test_a_place_below_a_file_is_refused_and_nothing_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file, not a folder"):
        runs.require_writable(tmp_path / "file" / "run")
    runs.require_writable(tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()


def test_a_file_system_that_refuses_is_named():
    with pytest.raises(ValueError, match="cannot write to /proc/run"):
        runs.claim(runs.Path("/proc/run"), TRIAL)
