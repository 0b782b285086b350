import pytest

from equipoise.config import TrainConfig
from equipoise.runs.folder import Path, claim_run_folder, load_finished_run, require_writable
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json

TRIAL = TrainConfig(workload="digits")


def record(trial):
    return Record(
        config=trial, machine={}, laps=[], status="max_examples", target=0.9, examples_to_target=None, test=0.5
    )


def test_a_new_or_empty_folder_holds_nothing(tmp_path):
    assert load_finished_run(tmp_path / "new", TRIAL) is None
    assert load_finished_run(tmp_path, TRIAL) is None
    assert not (tmp_path / "new").exists()


def test_a_claimed_folder_goes_on_and_a_finished_one_says_so(tmp_path):
    with claim_run_folder(tmp_path, TRIAL):
        assert load_finished_run(tmp_path, TRIAL) is None
    write_json(tmp_path / "record.json", record(TRIAL).to_json())
    assert load_finished_run(tmp_path, TRIAL) == record(TRIAL)


def test_another_trial_is_refused_and_its_difference_named(tmp_path):
    with claim_run_folder(tmp_path, TRIAL):
        pass
    with pytest.raises(ValueError, match=r"another trial \(lr is 0\.05, requested 0\.2; seed is 0, requested 3\)"):
        load_finished_run(tmp_path, TrainConfig(workload="digits", lr=0.2, seed=3))


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="holds no run"):
        load_finished_run(tmp_path, TRIAL)


def test_a_place_below_a_file_is_refused_and_nothing_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file, not a folder"):
        require_writable(tmp_path / "file" / "run")
    require_writable(tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()


def test_a_file_system_that_refuses_is_named():
    with pytest.raises(ValueError, match="cannot write to /proc/run"):
        claim_run_folder(Path("/proc/run"), TRIAL).__enter__()


def test_two_commands_do_not_write_to_one_folder(tmp_path):
    second = claim_run_folder(tmp_path, TRIAL)
    with claim_run_folder(tmp_path, TRIAL), pytest.raises(ValueError, match="another command is writing"):
        second.__enter__()
    with claim_run_folder(tmp_path, TRIAL):
        pass


@pytest.mark.parametrize(
    "held", ["{}", "[]", "null", '{"schema": 2}', '{"schema": 1, "laps": null}', '{"schema": 1, "laps": [{"a": 1}]}']
)
def test_a_damaged_record_is_named_with_what_to_do(tmp_path, held):
    with claim_run_folder(tmp_path, TRIAL):
        (tmp_path / "record.json").write_text(held)
    with pytest.raises(ValueError, match=r"record\.json: it is .*; remove it to train again"):
        load_finished_run(tmp_path, TRIAL)


def test_a_record_of_another_trial_is_not_taken_for_this_ones(tmp_path):
    with claim_run_folder(tmp_path, TRIAL):
        write_json(tmp_path / "record.json", record(TrainConfig(workload="digits", lr=9)).to_json())
    with pytest.raises(ValueError, match="records another trial"):
        load_finished_run(tmp_path, TRIAL)


@pytest.mark.parametrize("held", ["[]", "null", "5", "[" * 100_000])
def test_a_file_that_holds_no_trial_is_refused(tmp_path, held):
    (tmp_path / "trial.json").write_text(held)
    with pytest.raises(ValueError, match=r"trial\.json"):
        load_finished_run(tmp_path, TRIAL)
