"""jobs.train with servers: the weights of --sync step, also where the worker with the server dies, or the other one."""

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
from tests.support.run_observer import read_laps
from tests.unit.training.test_loop import train_model

OPTIONS = {"workers": 2, "batch_size": 16, "target": 2.0}
SHORT, LONG = {"max_examples": 1920, "eval_every": 960}, {"max_examples": 40_000, "eval_every": 2000}


def build_command(cluster, out, **options):
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    return cluster.build_train_command("--sync", "server", *flags, "--out", out)


def require_weights_of_steps(out, folder, options):
    """Compare a run with one of --sync step: the sum of two gradients has the same bits in any order."""
    undisturbed, laps = run_with_gloo(2, folder, train_model, TrainConfig(workload="digits", **options))[0]
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in undisturbed.items())
    record = Record.from_json(json.loads((out / "record.json").read_text()))
    assert [lap.loss for lap in record.laps] == [lap.loss for lap in laps]
    return record


def test_servers_train_on_a_cluster(cluster, tmp_path):
    out = tmp_path / "run"
    result = cluster.run(*build_command(cluster, out, servers=1, **OPTIONS, **SHORT))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("are on 1 server") == 1
    record = require_weights_of_steps(out, tmp_path, OPTIONS | SHORT)
    assert (record.config.sync, record.config.servers) == ("server", 1)
    assert all(lap.sent_bytes and lap.rounds == 2 and not lap.draws and not lap.all_reduce for lap in record.laps)
    assert "server, 1 server" in (out / "run.html").read_text()
    refused = cluster.run(*build_command(cluster, tmp_path / "refused", servers=11, **(OPTIONS | {"workers": "1:11"})))
    assert refused.returncode == 2
    assert "cannot spread 10 parameters over 11 servers" in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("victim", [0, 1])  # one of them has the server
def test_killed_worker_does_not_change_the_weights(cluster, tmp_path, victim):
    out = tmp_path / "run"
    process = cluster.start(*build_command(cluster, out, servers=1, **OPTIONS, **LONG))
    checkpoint = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    wait_until(lambda: checkpoint.exists() or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    victims = [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]
    assert len(victims) == 2, process.communicate()
    before = read_laps(out)
    os.kill(sorted(victims)[victim], signal.SIGKILL)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert before[0] == read_laps(out)[0]  # to the microsecond: the run went on from a checkpoint
    require_weights_of_steps(out, tmp_path, OPTIONS | LONG)
