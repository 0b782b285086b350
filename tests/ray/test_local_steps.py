"""jobs.train with averages of weights: a killed worker does not change them, and the run says what is averaged."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from jobs.cluster.processes import wait_until
from tests.support.gloo import run_with_gloo
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants
from tests.unit.training.test_loop import train_model

OPTIONS = {"workers": 2, "batch_size": 16, "max_examples": 40_000, "target": 2.0, "eval_every": 2000}
DILOCO = {"sync": "diloco:16", "outer_lr": 0.9, "outer_momentum": 0.5}


@pytest.mark.slow
@pytest.mark.thorough
def test_killed_worker_does_not_change_averages_of_weights(cluster, tmp_path):
    out = tmp_path / "run"
    flags = [text for name, value in (OPTIONS | DILOCO).items() for text in (f"--{name.replace('_', '-')}", value)]
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
    assert stdout.count("weights and moments of the optimizer are averaged every 16 steps") == 1
    record = Record.from_json(json.loads((out / "record.json").read_text()))
    assert all(lap.steps % 16 == 0 and lap.average_interval == 16 and not lap.draws for lap in record.laps)
    undisturbed, laps = run_with_gloo(2, tmp_path, train_model, TrainConfig(workload="digits", **OPTIONS, **DILOCO))[0]
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in undisturbed.items())
    assert [lap.loss for lap in record.laps] == [lap.loss for lap in laps]
