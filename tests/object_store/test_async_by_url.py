"""Asynchronous run in a bucket: its log survives a killed command, and it is replayed from there."""

import os
import signal
import sys

import pytest

from jobs.cluster.processes import wait_until

RUN = "runs/asynchronous"
FLAGS = (
    *("--workers", 2, "--batch-size", 16, "--max-examples", 40_000, "--eval-every", 2000, "--target", 2.0),
    *("--sync", "async:2", "--out", f"s3://bucket/{RUN}"),
)
TIMEOUT_SECONDS = 600


def has_checkpoint(store):
    return "checkpoints/checkpoint_manager_snapshot.json" in store.list_names(RUN)


@pytest.mark.thorough
def test_killed_asynchronous_run_resumes_and_is_replayed_from_a_bucket(cluster, store):
    process = cluster.start(*cluster.build_train_command(*FLAGS))
    wait_until(lambda: has_checkpoint(store) or process.poll() is not None, TIMEOUT_SECONDS, "a checkpoint")
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    result = cluster.run(*cluster.build_train_command(*FLAGS), timeout=TIMEOUT_SECONDS)
    assert result.returncode == 0, result.stderr
    assert "resuming after step" in result.stdout
    log = store.read_bytes(f"{RUN}/arrivals.jsonl")
    assert len(log.splitlines()) == len(store.read_record(RUN).laps)
    replay = cluster.run(sys.executable, "-m", "jobs.replay", "--run", f"s3://bucket/{RUN}", timeout=TIMEOUT_SECONDS)
    assert replay.returncode == 0, replay.stdout + replay.stderr
    assert f"s3://bucket/{RUN}: the replay of " in replay.stdout
