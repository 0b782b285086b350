"""jobs.train with asynchronous workers: it ends or goes on when a process is killed, and its log still replays."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from equipoise.parameter_store.arrivals.lap_arrivals import ARRIVALS_FILE
from equipoise.runs.folder import read_record
from jobs.cluster.processes import wait_until
from jobs.ray_train.checkpoint_files import LAPS_FILE, load_laps
from tests.support.ray_cluster import PATIENCE_SECONDS, list_descendants

OPTIONS = {
    "workers": 2,
    "batch_size": 16,
    "max_examples": 60_000,
    "target": 2.0,
    "eval_every": 2000,
    "sync": "async:2",
    "servers": 1,
    "precision": "fp64",
}


def build_command(cluster, out, **changes):
    flags = [(f"--{name.replace('_', '-')}", value) for name, value in (OPTIONS | changes).items()]
    return cluster.build_train_command(*(text for flag in flags for text in flag), "--out", out)


def load_checkpoint_laps(out):
    """Return the laps of the newest checkpoint; none without any."""
    snapshot = out / "checkpoints" / "checkpoint_manager_snapshot.json"
    if not snapshot.exists():
        return []
    latest = json.loads(snapshot.read_text())["latest_checkpoint_result"]
    return load_laps(snapshot.parent / latest["checkpoint_dir_name"] / LAPS_FILE) if latest else []


def require_replay(cluster, out):
    """Replay the run, whose weights and running statistics must be equal but for rounding."""
    result = cluster.run(sys.executable, "-m", "jobs.replay", "--run", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gives the same weights" in result.stdout and result.stdout.count("\n") == 1
    return result.stdout


def wait_for_checkpoint(process, out):
    wait_until(lambda: load_checkpoint_laps(out) or process.poll() is not None, PATIENCE_SECONDS, "a checkpoint")
    assert process.poll() is None, process.communicate()


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_run_goes_on_from_a_checkpoint_when_a_process_is_killed(cluster, tmp_path, victim):
    out = tmp_path / "run"
    process = cluster.start(*build_command(cluster, out))
    wait_for_checkpoint(process, out)
    victims = [
        pid
        for pid, command in list_descendants(cluster.head_pid).items()
        if command.startswith("ray::RayTrainWorker") and has_server(pid) is (victim == "server")
    ]
    assert len(victims) == 1
    os.kill(victims[0], signal.SIGKILL)
    before = load_checkpoint_laps(out)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    record = read_record(out / "record.json")
    assert list(record.laps)[: len(before)] == before
    assert len((out / ARRIVALS_FILE).read_text().splitlines()) == len(record.laps)
    assert all(0 < lap.mean_staleness <= lap.max_staleness <= 2 and lap.sent_bytes for lap in record.laps)
    require_replay(cluster, out)


def has_server(pid):
    """Return whether a process has the one server of its run, as the worker does that the others meet at."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return "pt_tcpstore_uv" in [(thread / "comm").read_text().strip() for thread in threads]
