"""jobs.train with parts of the model in each worker: killed workers and other shardings do not change the weights."""

import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from equipoise.command_line import STOPPED
from equipoise.config import TrainConfig
from equipoise.runs.folder import read_record
from equipoise.training.loop import Training
from jobs.cluster.processes import wait_until
from tests.support.gloo import run_with_gloo
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants
from tests.support.run_observer import read_laps
from tests.support.sharded_runs import largest_difference

OPTIONS = {
    "workers": 2,
    "batch_size": 16,
    "target": 2.0,
    "max_examples": 20_000,
    "eval_every": 2000,
    "optimizer": "adamw",
    "lr": 0.002,
    "precision": "fp64",
}


def train_undisturbed(config):
    """Return the weights of a whole run, and its laps."""
    training = Training(config)
    for _ in training.laps():
        pass
    training.load_kept_weights()
    return training.model.state_dict(), training.finished_laps


def start_training(cluster, sharding, out):
    """Start a run and wait for its first checkpoint."""
    process = cluster.start(*build_command(cluster, sharding, out))
    checkpoint = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    wait_until(lambda: checkpoint.exists() or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    return process


def build_command(cluster, sharding, out):
    flags = [text for name, value in OPTIONS.items() for text in (f"--{name.replace('_', '-')}", value)]
    return cluster.build_train_command(*flags, "--sharding", sharding, "--out", out)


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize(("sharding", "victim"), [("full", 1), ("pipeline:2", 0), ("tensor:2", 1), ("optimizer", 0)])
def test_killed_worker_does_not_change_the_weights(cluster, tmp_path, sharding, victim):
    out = tmp_path / "run"
    process = start_training(cluster, sharding, out)
    victims = [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]
    assert len(victims) == 2, process.communicate()
    before = read_laps(out)
    os.kill(sorted(victims)[victim], signal.SIGKILL)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert before[0] == read_laps(out)[0]  # to the microsecond: the run went on from a checkpoint
    config = TrainConfig(workload="digits", sharding=sharding, **OPTIONS)
    undisturbed, laps = run_with_gloo(2, tmp_path, train_undisturbed, config)[0]
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in undisturbed.items())
    record = read_record(out / "record.json")
    assert [(lap.loss, lap.metric) for lap in record.laps] == [(lap.loss, lap.metric) for lap in laps]
    assert record.config.sharding == sharding


@pytest.mark.slow
def test_stopped_run_goes_on_with_another_sharding(cluster, tmp_path):
    out = tmp_path / "run"
    process = start_training(cluster, "full", out)
    process.terminate()
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == STOPPED, stderr
    before = read_laps(out)
    resumed = cluster.run(*build_command(cluster, "pipeline:2", out))
    assert resumed.returncode == 0 and f"resuming after step {before[-1]['step']}" in resumed.stdout, resumed
    assert read_laps(out)[: len(before)] == before
    finished = cluster.run(*build_command(cluster, "none", out))
    assert finished.returncode == 0 and "nothing to do" in finished.stdout, finished
    undisturbed, _ = run_with_gloo(2, tmp_path, train_undisturbed, TrainConfig(workload="digits", **OPTIONS))[0]
    assert largest_difference(load_file(out / "model.safetensors"), undisturbed, "") < 1e-12
