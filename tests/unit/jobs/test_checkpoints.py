import json
import os
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals import ARRIVALS_FILE
from equipoise.runs.record import Lap
from jobs.ray_train.checkpoint_files import LAPS_FILE, TRAINING_STATE_FILE, error_file_name
from jobs.ray_train.checkpoints import CHECKPOINT_SNAPSHOT_FILE, CHECKPOINTS_FOLDER, find_last_lap
from tests.support.errors import raises_code

LAP = Lap(step=7, steps=7, seen=70, examples=70, workers=1, lr=0.1, loss=1.0, seconds=1.0,
          data_seconds=0.1, compute_seconds=0.8, exchange_seconds=0.1)  # fmt: skip

EXACT = TrainConfig(workload="digits", workers=2)
ODD_SNAPSHOT = {"latest_checkpoint_result": {"checkpoint_dir_name": "checkpoint_1"}, "checkpoint_results": [{"a": 1}]}


def build_model():
    return nn.Linear(3, 2)


@pytest.fixture
def run_folder(tmp_path):
    """Write a run folder with one checkpoint and return it."""
    checkpoint = tmp_path / CHECKPOINTS_FOLDER / "checkpoint_1"
    checkpoint.mkdir(parents=True)
    result = {"checkpoint_dir_name": checkpoint.name, "metrics": {"step": 7}}
    snapshot = {"latest_checkpoint_result": result, "checkpoint_results": [result]}
    (checkpoint.parent / CHECKPOINT_SNAPSHOT_FILE).write_text(json.dumps(snapshot))
    save_file(
        {f"model.{name}": value for name, value in build_model().state_dict().items()}, checkpoint / TRAINING_STATE_FILE
    )
    (checkpoint / LAPS_FILE).write_text(json.dumps([asdict(LAP)]))
    return tmp_path


def test_last_lap_is_read_from_the_checkpoint(run_folder):
    assert find_last_lap(run_folder, EXACT, build_model) == LAP


def test_new_run_has_no_last_lap(tmp_path):
    assert find_last_lap(tmp_path, EXACT, build_model) is None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *((CHECKPOINT_SNAPSHOT_FILE, text) for text in ("{", "[]", json.dumps(ODD_SNAPSHOT))),
        *(
            (LAPS_FILE, text)
            for text in (
                "[",
                "[]",
                '[{"step": 1}]',
                json.dumps([asdict(LAP) | {"seen": -100}]),
                json.dumps([asdict(LAP) | {"loss": 10**400}]),
            )
        ),
        (TRAINING_STATE_FILE, "cut"),
    ],
)
def test_damaged_checkpoint_is_refused_with_the_remedy(run_folder, file, content):
    folder = (
        run_folder / CHECKPOINTS_FOLDER
        if file == CHECKPOINT_SNAPSHOT_FILE
        else run_folder / CHECKPOINTS_FOLDER / "checkpoint_1"
    )
    (folder / file).write_text(content)
    with raises_code("run-damaged", run_folder):
        find_last_lap(run_folder, EXACT, build_model)


def test_checkpoint_without_read_permission_is_not_reported_as_damaged(run_folder):
    (run_folder / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE).chmod(0)
    child = os.fork()
    if not child:  # as another user, because root may read every file
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            find_last_lap(run_folder, EXACT, build_model)
        except PermissionError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_missing_training_state_is_refused(run_folder):
    (run_folder / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE).unlink()
    with raises_code("run-damaged"):
        find_last_lap(run_folder, EXACT, build_model)


def test_checkpoint_of_another_model_is_refused_with_both_shapes(run_folder):
    with raises_code("run-damaged", "weight is [2, 3], not [5, 3]"):
        find_last_lap(run_folder, EXACT, lambda: nn.Linear(3, 5))


def test_missing_weight_is_named(run_folder):
    save_file(
        {"model.weight": torch.zeros(2, 3)}, run_folder / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE
    )
    with raises_code("run-damaged", "bias is None, not [2]"):
        find_last_lap(run_folder, EXACT, build_model)


def test_file_of_what_compression_left_out_in_each_worker_has_to_be_there_and_whole(run_folder):
    checkpoint, config = run_folder / CHECKPOINTS_FOLDER / "checkpoint_1", replace(EXACT, compression="int8")
    with raises_code("run-damaged", error_file_name(0, 1), "is missing", run_folder):
        find_last_lap(run_folder, config, build_model)
    assert find_last_lap(run_folder, replace(config, error_feedback=False), build_model) == LAP
    for rank in range(2):
        save_file({f"error.worker.{rank}": torch.zeros(8)}, checkpoint / error_file_name(rank, 2))
    assert find_last_lap(run_folder, config, build_model) == LAP
    path = checkpoint / error_file_name(1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with raises_code("run-damaged", run_folder, "unusable"):
        find_last_lap(run_folder, config, build_model)
    path.unlink()
    with raises_code("run-damaged", path, "is missing"):
        find_last_lap(run_folder, config, build_model)


def test_files_behind_a_url_are_checked_too(run_folder, bucket):
    config = replace(EXACT, compression="int8")
    save_file(
        {"error.worker.0": torch.zeros(8)}, run_folder / CHECKPOINTS_FOLDER / "checkpoint_1" / error_file_name(0, 1)
    )
    for path in (path for path in run_folder.rglob("*") if path.is_file()):
        (bucket / str(path.relative_to(run_folder))).write_bytes(path.read_bytes())
    assert find_last_lap(bucket, config, build_model) == LAP
    (bucket / CHECKPOINTS_FOLDER / "checkpoint_1" / error_file_name(0, 1)).unlink()
    with raises_code("run-damaged", error_file_name(0, 1), "is missing"):
        find_last_lap(bucket, config, build_model)


@pytest.mark.parametrize("content", [None, "", "{", '{"step": 7, "steps": 7, "workers": 2, "updates": []}'])
def test_checkpoint_without_a_whole_log_of_arrivals_is_refused(run_folder, content):
    log = run_folder / CHECKPOINTS_FOLDER / "checkpoint_1" / ARRIVALS_FILE
    if content is not None:
        log.write_text(content)
    with raises_code("run-damaged", run_folder, ARRIVALS_FILE):
        find_last_lap(run_folder, replace(EXACT, sync="async:1"), build_model)
