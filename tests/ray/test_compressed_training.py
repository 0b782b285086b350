"""jobs.train with compressed gradients: a killed worker does not change them, as each finds again what it left out."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from jobs.cluster.processes import wait_until
from jobs.ray_train.checkpoint_files import LAPS_FILE, TRAINING_STATE_FILE, error_file_name
from tests.support.gloo import run_with_gloo
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants
from tests.support.run_observer import read_laps
from tests.unit.training.test_loop import train_model

OPTIONS = {"workers": 2, "batch_size": 16, "max_examples": 40_000, "target": 2.0, "eval_every": 2000}


def build_command(cluster, out, **options):
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    return cluster.build_train_command(*flags, "--out", out)


def list_checkpoints(out):
    """Return the folders of the checkpoints that Ray keeps, the newest last."""
    snapshot = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    text = snapshot.read_text() if snapshot.exists() else ""
    results = json.loads(text)["checkpoint_results"] if text else []  # Ray empties the file before it writes it anew
    return [snapshot.parent / result["checkpoint_dir_name"] for result in results]


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("changes", [{"compression": "powersgd:5", "precision": "fp64"}, {"compression": "int8"}])
def test_killed_worker_does_not_change_compressed_gradients(cluster, tmp_path, changes):
    out = tmp_path / "run"
    process = cluster.start(*build_command(cluster, out, **OPTIONS, **changes))
    wait_until(lambda: list_checkpoints(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    victims = [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]
    assert len(victims) == 2, process.communicate()
    os.kill(victims[1], signal.SIGKILL)
    before = read_laps(out)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert ("powersgd:5 sums 1 of " in stdout) is (changes["compression"] == "powersgd:5")
    files = [error_file_name(rank, 2) for rank in range(2)] + [LAPS_FILE, TRAINING_STATE_FILE]
    assert sorted(path.name for path in list_checkpoints(out)[-1].iterdir()) == files
    assert before[0] == read_laps(out)[0]  # to the microsecond: the run went on from a checkpoint
    record = Record.from_json(json.loads((out / "record.json").read_text()))
    assert all(lap.encode_seconds and lap.sent_bytes and lap.rounds and not lap.draws for lap in record.laps)
    config = TrainConfig(workload="digits", **OPTIONS, **changes)
    undisturbed, laps = run_with_gloo(2, tmp_path, train_model, config)[0]
    weights = load_file(out / "model.safetensors")
    assert all(torch.equal(weights[name], value) for name, value in undisturbed.items())
    assert [lap.loss for lap in record.laps] == [lap.loss for lap in laps]


def test_rank_that_the_model_cannot_use_is_refused_before_workers_start(cluster, tmp_path):
    result = cluster.run(*build_command(cluster, tmp_path / "run", **OPTIONS, compression="powersgd:400"))
    assert result.returncode == 2
    assert "cannot send gradients by powersgd:400" in result.stderr and "Traceback" not in result.stderr
