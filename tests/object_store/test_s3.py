"""Runs by URL: killed and stopped commands on a real Ray cluster, and a real S3 server that does not answer."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load

from jobs.cluster.processes import wait_until
from tests.support.ray_cluster import list_descendants

LONG_RUN_FLAGS = ["--workers", 2, "--batch-size", 16, "--max-examples", 180_000, "--target", 2.0, "--eval-every", 3000]
"""options of a run that trains for 15 s on two cores: a stop needs up to 2 s to reach the workers"""
TIMEOUT_SECONDS = 400  # enough for a machine that is shared with other work


def load_weights(store, run):
    return load(store.read_bytes(f"{run}/model.safetensors"))


def has_checkpoint(store, run):
    """Return whether a checkpoint of a run is complete."""
    return any(name.endswith("snapshot.json") for name in store.list_names(run))


def list_checkpoints(store, run):
    """Return the names of the checkpoints of a run."""
    return {name.split("/")[1] for name in store.list_names(run) if name.startswith("checkpoints/checkpoint_2")}


def list_train_worker_pids(cluster):
    return [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]


def start_run_with_checkpoint(cluster, store, url, name):
    """Start a long run and return its process once it has a checkpoint."""
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", url))
    wait_until(lambda: has_checkpoint(store, name) or process.poll() is not None, TIMEOUT_SECONDS)
    assert process.poll() is None, process.communicate()
    return process


@pytest.fixture(scope="module")
def killed_run(cluster, store):
    """A long run that was killed and resumed, and then waited for the store.

    Its name, stdout, stderr, and the seconds from the return of the store to the next checkpoint.
    """
    url, name = "s3://bucket/runs/killed", "runs/killed"
    process = start_run_with_checkpoint(cluster, store, url, name)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert "record.json" not in store.list_names(name)
    wait_until(lambda: not list_train_worker_pids(cluster), TIMEOUT_SECONDS)
    before = list_checkpoints(store, name)
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", url))
    wait_until(lambda: list_checkpoints(store, name) - before or process.poll() is not None, TIMEOUT_SECONDS)
    with store.pause(), suppress(TimeoutError):
        wait_until(lambda: process.poll() is not None, 19, "longer than one attempt and the pause before it")
    assert process.poll() is None, process.communicate()
    start, before = time.monotonic(), list_checkpoints(store, name)
    wait_until(lambda: list_checkpoints(store, name) - before or process.poll() is not None, TIMEOUT_SECONDS)
    delay_seconds = time.monotonic() - start
    stdout, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, stderr
    return name, stdout, stderr, delay_seconds


def test_killed_run_resumes_and_loses_nothing_while_the_store_is_down(cluster, store, killed_run, capsys):
    name, stdout, stderr, delay_seconds = killed_run
    with capsys.disabled():
        print(f"\n  from the return of the store to the next checkpoint: {delay_seconds:.0f} s")
    assert "resuming after step" in stdout
    assert "does not answer" in stderr and stderr.count("\n") <= 2
    laps = store.read_record(name).laps
    assert len(store.read_bytes(f"{name}/laps.jsonl").splitlines()) == len(laps) == 60
    assert sum(lap.examples for lap in laps) == laps[-1].seen == 180_000
    assert max(lap.seconds for lap in laps) < 10  # the clock stops while the run waits for the store
    assert len(list_checkpoints(store, name)) == 2
    assert b"<html" in store.read_bytes(f"{name}/run.html")[:200]
    contradicting = cluster.run(
        *cluster.build_train_command(*LONG_RUN_FLAGS, "--lr", "0.1", "--out", f"s3://bucket/{name}"),
        timeout=TIMEOUT_SECONDS,
    )
    assert contradicting.returncode == 2 and "lr was not given, requested 0.1" in contradicting.stderr


@pytest.mark.thorough
def test_stopped_run_that_lost_its_store_resumes_with_the_same_weights(cluster, store, killed_run):
    url, name = "s3://bucket/runs/stopped", "runs/stopped"
    process = start_run_with_checkpoint(cluster, store, url, name)
    assert any(line.startswith("step ") for line in process.stdout)  # the command sees laps later than the store
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 143, stderr
    assert "the same command resumes" in stdout
    assert not {"record.json", "stop"} & {*store.list_names(name)}
    before = list_checkpoints(store, name)
    process = cluster.start(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", url))
    wait_until(lambda: list_checkpoints(store, name) - before or process.poll() is not None, TIMEOUT_SECONDS)
    with store.pause():
        _, stderr = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 1
    last_line = stderr.splitlines()[-1]
    assert last_line.startswith(f"error: {url}") and last_line.endswith(
        "the same command resumes once the store answers"
    )
    assert "does not answer" in last_line
    assert "not-to-be-seen" not in stderr
    result = cluster.run(*cluster.build_train_command(*LONG_RUN_FLAGS, "--out", url), timeout=TIMEOUT_SECONDS)
    assert result.returncode == 0, result.stderr
    assert "resuming after step" in result.stdout
    weights, expected = load_weights(store, name), load_weights(store, killed_run[0])
    assert weights.keys() == expected.keys() and all(torch.equal(weights[key], expected[key]) for key in weights)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://nowhere/runs/x", "cannot write to s3://nowhere/runs/x: The specified bucket does not exist"),
        ("s3://name:not-to-be-seen@bucket/runs/x", "s3://... has a password in it"),
    ],
)
def test_invalid_url_is_refused_with_one_sentence(cluster, store, url, sentence):
    result = cluster.run(*cluster.build_train_command("--out", url), timeout=TIMEOUT_SECONDS)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and sentence in result.stderr
    assert result.stderr.count("\n") == 1 and "not-to-be-seen" not in result.stderr
    assert result.stdout == "" and not store.list_names("runs/x")


@pytest.mark.parametrize(
    ("variables", "sentence", "status"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials", 2),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect to the endpoint URL", 1),
    ],
)
def test_unreachable_store_is_reported_in_one_sentence(cluster, variables, sentence, status):
    altered = replace(cluster, environment=cluster.environment | variables | {"AWS_EC2_METADATA_DISABLED": "true"})
    result = altered.run(*cluster.build_train_command("--out", "s3://bucket/runs/x"), timeout=TIMEOUT_SECONDS)
    assert result.returncode == status
    assert sentence in result.stderr and result.stderr.count("\n") == 1 and result.stdout == ""
