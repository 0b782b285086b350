import os
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.registries.option_groups import PLACEMENT_OPTIONS
from equipoise.runs.folder import (
    LOCK_FILE_NAME,
    Path,
    claim_run_folder,
    load_finished_run,
    lock_folder,
    read_finished_run,
    require_writable,
)
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath
from tests.support.errors import raises_code

CONFIG = TrainConfig(workload="digits", lr=0.05)


def build_record(config):
    return Record(
        config=config,
        machine=HardwareFacts(),
        laps=[],
        status="max_examples",
        target=0.9,
        examples_to_target=None,
        test=0.5,
    )


def test_new_or_empty_folder_holds_no_run(tmp_path):
    assert load_finished_run(tmp_path / "new", CONFIG) is None
    assert load_finished_run(tmp_path, CONFIG) is None
    assert not (tmp_path / "new").exists()


def test_claimed_folder_is_unfinished_until_it_has_a_record(tmp_path):
    with claim_run_folder(tmp_path, CONFIG):
        assert load_finished_run(tmp_path, CONFIG) is None
    write_json(tmp_path / "record.json", build_record(CONFIG).to_json())
    assert load_finished_run(tmp_path, CONFIG) == build_record(CONFIG)


def test_folder_of_another_trial_is_refused_with_the_differences(tmp_path):
    with claim_run_folder(tmp_path, CONFIG):
        pass
    with raises_code("run-mismatch", "choose another --out or remove it"):
        load_finished_run(tmp_path, TrainConfig(workload="digits", lr=0.2))
    (tmp_path / "model.safetensors").touch()
    with raises_code("run-mismatch", "lr is 0.05, requested 0.2; seed is 0, requested 3", f"--init-from {tmp_path}"):
        load_finished_run(tmp_path, TrainConfig(workload="digits", lr=0.2, seed=3))


def test_run_is_not_resumed_with_another_all_reduce(tmp_path):
    with claim_run_folder(tmp_path, CONFIG):
        pass
    with raises_code("run-mismatch", "all_reduce is backend, requested ring", "choose another --out"):
        load_finished_run(tmp_path, replace(CONFIG, all_reduce="ring"))


@pytest.mark.parametrize(
    "options", [{"sharding": "full"}, {"recompute": True}, {"sharding": "pipeline:2", "pipeline_schedule": "gpipe"}]
)
def test_run_may_be_resumed_with_its_state_elsewhere(tmp_path, options):
    config = replace(CONFIG, workers=2)
    with claim_run_folder(tmp_path, config):
        pass
    changed = replace(config, **options)
    assert load_finished_run(tmp_path, changed, PLACEMENT_OPTIONS) is None
    with raises_code("run-mismatch", *options):
        load_finished_run(tmp_path, changed)
    with raises_code("run-mismatch", "seed is 0, requested 1"):
        load_finished_run(tmp_path, replace(changed, seed=1), PLACEMENT_OPTIONS)
    write_json(tmp_path / "record.json", build_record(config).to_json())
    assert load_finished_run(tmp_path, changed, PLACEMENT_OPTIONS) == build_record(config)


def test_difference_names_an_option_that_was_or_is_not_given(tmp_path):
    with claim_run_folder(tmp_path / "without", TrainConfig(workload="digits")):
        pass
    with raises_code("run-mismatch", "lr was not given, requested 0.05"):
        load_finished_run(tmp_path / "without", CONFIG)
    with claim_run_folder(tmp_path / "with", CONFIG):
        pass
    with raises_code("run-mismatch", "lr is 0.05, now not given"):
        load_finished_run(tmp_path / "with", TrainConfig(workload="digits"))


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_lock_that_is_no_file_is_refused_without_waiting(tmp_path, kind):
    lock, target = tmp_path / LOCK_FILE_NAME, tmp_path / "thesis.tex"
    target.write_text("the only copy")
    {"pipe": os.mkfifo, "folder": Path.mkdir, "link": lambda path: path.symlink_to(target)}[kind](lock)
    with pytest.raises(EquipoiseError) as raised:
        lock_folder(tmp_path).__enter__()
    assert raised.value.code in ("path-kind", "path-access")
    assert str(lock) in str(raised.value) and target.read_text() == "the only copy"


def test_folder_with_foreign_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with raises_code("path-in-use"):
        load_finished_run(tmp_path, CONFIG)


def test_folder_below_a_file_is_refused_and_nothing_is_created(tmp_path):
    (tmp_path / "file").touch()
    with raises_code("path-kind"):
        require_writable(tmp_path / "file" / "run")
    require_writable(tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()


def test_unwritable_file_system_is_named_in_the_error():
    with raises_code("path-missing", "/proc/run"):
        claim_run_folder(Path("/proc/run"), CONFIG).__enter__()


def test_second_command_cannot_claim_the_same_folder(tmp_path):
    second = claim_run_folder(tmp_path, CONFIG)
    with claim_run_folder(tmp_path, CONFIG), raises_code("path-in-use"):
        second.__enter__()
    with claim_run_folder(tmp_path, CONFIG):
        pass


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"schema": 2}', '{"schema": 1, "laps": null}', '{"schema": 1, "laps": [{"a": 1}]}']
)
def test_damaged_record_is_named_with_the_remedy(tmp_path, text):
    with claim_run_folder(tmp_path, CONFIG):
        (tmp_path / "record.json").write_text(text)
    with raises_code("run-damaged", "record.json"):
        load_finished_run(tmp_path, CONFIG)


def test_record_of_another_trial_is_refused(tmp_path):
    with claim_run_folder(tmp_path, CONFIG):
        write_json(tmp_path / "record.json", build_record(TrainConfig(workload="digits", lr=9)).to_json())
    with raises_code("run-mismatch", "record.json"):
        load_finished_run(tmp_path, CONFIG)


@pytest.mark.parametrize("text", ["[]", "null", "5", "[" * 100_000])
def test_invalid_trial_file_is_refused(tmp_path, text):
    (tmp_path / "trial.json").write_text(text)
    with pytest.raises(ValueError, match=r"trial\.json"):
        load_finished_run(tmp_path, CONFIG)


@pytest.mark.parametrize(("name", "target"), [("loop", "loop"), ("dangling", "nothing")])
def test_link_that_leads_to_no_folder_cannot_be_written(tmp_path, name, target):
    (tmp_path / name).symlink_to(target)
    for out in (tmp_path / name, tmp_path / name / "x"):
        with raises_code("path-kind", out, "symbolic link"):
            require_writable(out)


def test_folder_of_a_file_system_that_takes_no_files_cannot_be_written():
    with raises_code("path-missing", "/proc/x"):
        require_writable(Path("/proc/x"))


def test_check_of_a_folder_leaves_nothing_in_it(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    require_writable(tmp_path)
    require_writable(tmp_path / "link" / "new" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def write_finished_run(folder, **changes):
    write_json(folder / "record.json", replace(build_record(CONFIG), **changes).to_json())
    (folder / "model.safetensors").touch()


def test_a_finished_run_is_read_and_its_status_is_told_where_it_cannot_be(tmp_path):
    with raises_code("run-unusable", f"cannot publish --run {tmp_path}: it has no record.json"):
        read_finished_run(tmp_path, "publish")
    write_finished_run(tmp_path)
    assert read_finished_run(tmp_path, "publish") == build_record(CONFIG)
    for status in ("failed", "running"):
        write_finished_run(tmp_path, status=status, reason="no memory")
        with raises_code("run-unusable", f"cannot check --run {tmp_path}: its status is {status}: no memory"):
            read_finished_run(tmp_path, "check")
    for status in ("reached_target", "stopped_early", "pruned", "cut_off"):
        write_finished_run(tmp_path, status=status)
        assert read_finished_run(tmp_path, "check").status == status
    (tmp_path / "model.safetensors").unlink()
    with raises_code("run-unusable", "it has no model.safetensors"):
        read_finished_run(tmp_path, "check")


def test_a_url_is_tried_by_writing_and_nothing_stays_there(bucket, memory):
    require_writable(bucket / "runs" / "x")
    assert not memory.store
    with lock_folder(bucket / "runs"), lock_folder(bucket / "runs"):
        assert not memory.store  # a URL is not locked
    with raises_code("url-secret"):
        require_writable(RemotePath("s3://user:secret@bucket/x"))


def test_a_lock_is_free_again_after_a_failure(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path):
        raise ZeroDivisionError
    with lock_folder(tmp_path):
        pass
    assert (tmp_path / LOCK_FILE_NAME).stat().st_mode & 0o777 == 0o644 & ~read_umask()


def read_umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask
