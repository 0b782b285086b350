import json
import os
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from equipoise.runs.record import Lap
from jobs.ray_train.checkpoints import (
    CHECKPOINT_SNAPSHOT_FILE,
    CHECKPOINTS_FOLDER,
    LAPS_FILE,
    TRAINING_STATE_FILE,
    find_last_lap,
)

LAP = Lap(step=7, steps=7, seen=70, examples=70, workers=1, lr=0.1, loss=1.0, seconds=1.0,
          data_seconds=0.1, compute_seconds=0.8, exchange_seconds=0.1)  # fmt: skip


ODD_SNAPSHOT = {"latest_checkpoint_result": {"checkpoint_dir_name": "checkpoint_1"}, "checkpoint_results": [{"a": 1}]}


def model():
    return nn.Linear(3, 2)


@pytest.fixture
def out(tmp_path):
    newest = tmp_path / CHECKPOINTS_FOLDER / "checkpoint_1"
    newest.mkdir(parents=True)
    result = {"checkpoint_dir_name": newest.name, "metrics": {"step": 7}}
    snapshot = {"latest_checkpoint_result": result, "checkpoint_results": [result]}
    (newest.parent / CHECKPOINT_SNAPSHOT_FILE).write_text(json.dumps(snapshot))
    save_file({f"model.{name}": value for name, value in model().state_dict().items()}, newest / TRAINING_STATE_FILE)
    (newest / LAPS_FILE).write_text(json.dumps([asdict(LAP)]))
    return tmp_path


def test_a_run_goes_on_after_its_last_lap(out):
    assert find_last_lap(out, model) == LAP


def test_a_new_run_starts(tmp_path):
    assert find_last_lap(tmp_path, model) is None


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
def test_damage_is_said_with_what_to_do(out, file, content):
    folder = out / CHECKPOINTS_FOLDER if file == CHECKPOINT_SNAPSHOT_FILE else out / CHECKPOINTS_FOLDER / "checkpoint_1"
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=r"cannot resume .*: its checkpoint is unusable .*; remove .* to train"):
        find_last_lap(out, model)


def test_what_may_not_be_read_is_not_to_be_removed(out):
    (out / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE).chmod(0)
    child = os.fork()
    if not child:  # as another user: root reads all
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            find_last_lap(out, model)
        except PermissionError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_checkpoint_that_is_gone_is_missed(out):
    (out / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE).unlink()
    with pytest.raises(ValueError, match="cannot resume"):
        find_last_lap(out, model)


def test_another_model_is_named(out):
    with pytest.raises(ValueError, match=r"weight is \[2, 3\], not \[5, 3\]"):
        find_last_lap(out, lambda: nn.Linear(3, 5))


def test_shapes_are_read_from_the_file(out):
    save_file({"model.weight": torch.zeros(2, 3)}, out / CHECKPOINTS_FOLDER / "checkpoint_1" / TRAINING_STATE_FILE)
    with pytest.raises(ValueError, match=r"bias is None, not \[2\]"):
        find_last_lap(out, model)
