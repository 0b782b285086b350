"""jobs.train with recipes: a killed worker changes neither averaged weights, nor blends, nor how the batch grows."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from equipoise.training.loop import Training
from jobs.cluster.processes import wait_until
from tests.support.gloo import run_with_gloo
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants

OPTIONS = {"workers": 2, "batch_size": 16, "max_examples": 40_000, "target": 2.0, "eval_every": 2000}
RECIPES = {"optimizer": "lamb", "mixup": 0.2, "average_weights": 0.99, "grow_batch": "2@1000,4@30000"}


def train_kept_weights(config):
    """Train in this process, and return the weights that are kept and the laps."""
    training = Training(config)
    for _ in training.laps():
        pass
    training.load_kept_weights()
    return training.model.state_dict(), training.finished_laps


@pytest.mark.slow
@pytest.mark.thorough
def test_killed_worker_does_not_change_what_recipes_do(cluster, tmp_path):
    out = tmp_path / "run"
    options = (OPTIONS | RECIPES).items()
    flags = [text for name, value in options for text in (f"--{name.replace('_', '-')}", value)]
    process = cluster.start(*cluster.build_train_command(*flags, "--out", out))
    checkpoint = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    wait_until(lambda: checkpoint.exists() or process.poll() is not None)
    victims = [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]
    assert len(victims) == 2, process.communicate()
    os.kill(victims[1], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert "the global batch has grown from 64 to 128 examples" in stdout
    assert "32 examples per step at the start and 128 at the end" in stdout
    record = Record.from_json(json.loads((out / "record.json").read_text()))
    kept, laps = run_with_gloo(2, tmp_path, train_kept_weights, TrainConfig(workload="digits", **OPTIONS, **RECIPES))[0]
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in kept.items())
    assert [(lap.loss, lap.metric, lap.seen) for lap in record.laps] == [(x.loss, x.metric, x.seen) for x in laps]
