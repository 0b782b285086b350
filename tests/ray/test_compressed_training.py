"""jobs.train with compressed gradients: a run whose worker is killed goes on from what all of them had left out."""

import json
import os
import signal

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from jobs.cluster.processes import wait_until
from tests.support.ray_cluster import list_descendants
from tests.unit.training.test_loop import train_model

OPTIONS = {"workers": 2, "batch_size": 16, "max_examples": 20_000, "target": 2.0, "eval_every": 2000}
CODED = {"precision": "fp64", "compression": "powersgd:5"}


def build_command(cluster, out, **options):
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    return cluster.build_train_command(*flags, "--out", out)


@pytest.mark.slow
def test_run_with_powersgd_goes_on_after_a_worker_was_killed(cluster, tmp_path):
    out = tmp_path / "run"
    process = cluster.start(*build_command(cluster, out, **OPTIONS, **CODED))
    checkpoint = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    wait_until(lambda: checkpoint.exists() or process.poll() is not None, 240, "a checkpoint")
    victims = [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]
    assert len(victims) == 2, process.communicate()
    os.kill(victims[1], signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert "powersgd:5 sums 1 of " in stdout
    record = Record.from_json(json.loads((out / "record.json").read_text()))
    assert all(lap.encode_seconds and lap.sent_bytes and lap.rounds and not lap.draws for lap in record.laps)
    _, undisturbed = train_model(TrainConfig(workload="digits", **OPTIONS, **CODED))
    assert [lap.step for lap in record.laps] == [lap.step for lap in undisturbed]
    # PowerSGD amplifies rounding: after 60 steps weights agree to 1e-10, after 300 no longer
    assert record.laps[0].loss == pytest.approx(undisturbed[0].loss, rel=1e-6)
    assert record.laps[-1].loss == pytest.approx(undisturbed[-1].loss, rel=0.5)


def test_rank_that_the_model_cannot_use_is_refused_before_workers_start(cluster, tmp_path):
    result = cluster.run(*build_command(cluster, tmp_path / "run", **OPTIONS, compression="powersgd:400"))
    assert result.returncode == 2
    assert "cannot send gradients by powersgd:400" in result.stderr and "Traceback" not in result.stderr
