"""Results by URL as a user has them: real commands, a real Ray, a real server that speaks S3."""

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from io import BytesIO

import pytest
import torch
from PIL import Image
from safetensors.torch import load

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.cluster.private_ray import ENVIRONMENT_BIN
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import ROOT, list_descendants

LONG = ["--workers", 2, "--batch-size", 16, "--max-examples", 60_000, "--target", 2.0, "--eval-every", 2000]
"""a run of several seconds of training, so that it can be disturbed"""
LATE = 400  # seconds: of a machine that others use too
SERVE = str(ENVIRONMENT_BIN / "serve")


def job(name, *words):
    return [sys.executable, "-m", f"jobs.{name}", *map(str, words)]


def weights(store, run):
    return load(store.read(f"{run}/model.safetensors"))


def saved(store, name):
    """Whether a checkpoint is complete."""
    return any(one.endswith("snapshot.json") for one in store.names(name))


def checkpoints(store, name):
    """Those that are kept."""
    return {one.split("/")[1] for one in store.names(name) if one.startswith("checkpoints/checkpoint_2")}


def workers_of(cluster):
    return [
        pid for pid, command in list_descendants(cluster.head_pid).items() if command.startswith("ray::RayTrainWorker")
    ]


def begun(cluster, store, url, name):
    """A long run that has left its first checkpoint."""
    running = cluster.start(*cluster.train(*LONG, "--out", url))
    wait_until(lambda: saved(store, name) or running.poll() is not None, LATE)
    assert running.poll() is None, running.communicate()
    return running


@pytest.fixture(scope="module")
def killed(cluster, store):
    """A long run that was killed, went on, and had to wait for the store: its name, what was said at last, how late."""
    url, name = "s3://bucket/runs/killed", "runs/killed"
    running = begun(cluster, store, url, name)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert "record.json" not in store.names(name)
    wait_until(lambda: not workers_of(cluster), LATE)
    before = checkpoints(store, name)
    running = cluster.start(*cluster.train(*LONG, "--out", url))
    wait_until(lambda: checkpoints(store, name) - before or running.poll() is not None, LATE)
    with store.away(), suppress(TimeoutError):
        wait_until(lambda: running.poll() is not None, 17, "longer than one attempt")
    assert running.poll() is None, running.communicate()
    start, before = time.monotonic(), checkpoints(store, name)
    wait_until(lambda: checkpoints(store, name) - before or running.poll() is not None, LATE)
    late = time.monotonic() - start
    said, err = running.communicate(timeout=LATE)
    assert running.returncode == 0, err
    return name, said, err, late


def test_a_run_that_was_killed_goes_on_and_keeps_all_while_the_store_is_away(cluster, store, killed, capsys):
    name, said, err, late = killed
    with capsys.disabled():
        print(f"\n  from the store's answering again to the next checkpoint: {late:.0f} s")
    assert "resuming after step" in said
    assert "does not answer" in err and err.count("\n") <= 2
    laps = store.record(name).laps
    assert len(store.read(f"{name}/laps.jsonl").splitlines()) == len(laps) == 30
    assert sum(lap.examples for lap in laps) == laps[-1].seen == 60_000
    assert max(lap.seconds for lap in laps) < 10  # no clock ran while the store was waited for
    assert len(checkpoints(store, name)) == 2
    assert b"<html" in store.read(f"{name}/run.html")[:200]
    again = cluster.run(*cluster.train(*LONG, "--lr", "0.1", "--out", f"s3://bucket/{name}"), timeout=LATE)
    assert again.returncode == 2 and "lr is 0.05, requested 0.1" in again.stderr


def test_a_run_that_was_stopped_and_that_lost_its_store_goes_on_and_is_the_same(cluster, store, killed):
    url, name = "s3://bucket/runs/stopped", "runs/stopped"
    running = begun(cluster, store, url, name)
    running.send_signal(signal.SIGTERM)
    said, err = running.communicate(timeout=LATE)
    assert running.returncode == 143, err
    assert "the same command resumes" in said
    assert not {"record.json", "stop"} & {*store.names(name)}
    before = checkpoints(store, name)
    running = cluster.start(*cluster.train(*LONG, "--out", url))
    wait_until(lambda: checkpoints(store, name) - before or running.poll() is not None, LATE)
    with store.away():
        _, err = running.communicate(timeout=LATE)
    assert running.returncode == 1
    last = err.splitlines()[-1]
    assert last.startswith(f"error: {url}") and last.endswith("the same command resumes once the store answers")
    assert "does not answer" in last
    assert "not-to-be-seen" not in err
    done = cluster.run(*cluster.train(*LONG, "--out", url), timeout=LATE)
    assert done.returncode == 0, done.stderr
    assert "resuming after step" in done.stdout
    one, other = weights(store, name), weights(store, killed[0])
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_from_a_sweep_to_answers_over_http_with_nothing_on_this_disk(cluster, store):
    sweep = job("sweep", "--workload", "digits", "--workers", 1, 2, "--batch-size", "16:32", "--target", 0.9)
    sweep += ["--exhaustive", "--seeds", "1", "--lr", "0.05:0.05", "--out", "s3://bucket/sweep"]
    running = cluster.start(*sweep)
    wait_until(lambda: ended(store, "sweep/trials") or running.poll() is not None, LATE)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    before = ended(store, "sweep/trials")
    assert before, running.communicate()
    done = cluster.run(*sweep, timeout=LATE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"^timing ", done.stdout, re.MULTILINE)
    after = ended(store, "sweep/trials")
    assert len(after) == 3 and {name: after[name] for name in before} == before
    left = {one.split("/")[0] for one in store.names("sweep")}
    assert left == {
        *("confirm", "confirm.json", "curve.html", "plan.json", "scaling.html"),
        *("statistical.csv", "system", "system.csv", "trial.json", "trials"),
    }
    facts = store.json("sweep/plan.json")
    tables = ("--system", "s3://bucket/sweep/system.csv", "--statistical", "s3://bucket/sweep/statistical.csv")
    done = cluster.run(*job("plan", *tables, "--predict-at", "1x2", "--out", "s3://bucket/plan"), timeout=LATE)
    assert done.returncode == 0, done.stderr
    plan = store.json("plan/plan.json")["plan"]
    assert [plan[name] for name in ("workers", "batch")] == [facts["plan"][name] for name in ("workers", "batch")]
    (run,) = {one.split("/")[1] for one in store.names("sweep") if one.startswith("confirm/")}
    chosen = ("--workers", plan["workers"], "--batch-size", plan["batch"], "--lr", plan["lr"], "--target", 0.9)
    asked = cluster.train(*chosen, "--init-from", f"s3://bucket/sweep/confirm/{run}", "--out", "s3://bucket/tuned")
    done = cluster.run(*asked, timeout=LATE)
    assert done.returncode == 0, done.stderr
    assert "reusing the classifier rows of 10 of 10 classes" in done.stdout
    publish = job("publish", "--run", "s3://bucket/tuned", "--plan", "s3://bucket/sweep", "--no-native", "--no-drift")
    done = cluster.run(*publish, "--out", "s3://bucket/bundles/digits", timeout=LATE)
    assert done.returncode == 0, done.stderr
    assert store.json("bundles/digits/bundle.json")["plan"]["plan"]["batch"] == plan["batch"]
    assert not list(ROOT.glob("s3*"))
    assert answered(cluster) == (200, store.json("bundles/digits/bundle.json")["digest"][:12])


def ended(store, folder):
    """Trials that ended, by file."""
    found = {name: store.json(f"{folder}/{name}") for name in store.names(folder)}
    return {name: facts for name, facts in found.items() if facts["status"] in ("reached_target", "max_examples")}


def answered(cluster):
    """Status, and the version that answers, of a picture sent to a service of the bundle."""
    test = load_workload(TrainConfig(workload="digits")).test
    picture = BytesIO()
    Image.fromarray(test.pictures[0][0].numpy()).save(picture, "PNG")
    (port,) = find_free_ports(1)
    running = cluster.start(
        SERVE, "run", "services.app:build", "bundle=s3://bucket/bundles/digits", f"port={port}", "drift=false"
    )
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)

        def ready():
            with suppress(OSError):
                connection.request("GET", "/ready")
                reply = connection.getresponse()
                reply.read()
                return reply.status == 200
            connection.close()
            return running.poll() is not None

        wait_until(ready, LATE)
        assert running.poll() is None, running.communicate()
        connection.request("POST", "/predict", picture.getvalue(), {"content-type": "image/png"})
        reply = connection.getresponse()
        found = reply.status, json.load(reply)["version"]
        connection.close()
        return found
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=LATE)
        cluster.shut_down_serve()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("s3://nowhere/runs/x", "cannot write to s3://nowhere/runs/x: The specified bucket does not exist"),
        ("s3://name:not-to-be-seen@bucket/runs/x", "s3://... has a password in it"),
    ],
)
def test_a_url_that_cannot_be_is_one_sentence(cluster, store, url, sentence):
    done = cluster.run(*cluster.train("--out", url), timeout=LATE)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and sentence in done.stderr
    assert done.stderr.count("\n") == 1 and "not-to-be-seen" not in done.stderr
    assert done.stdout == "" and not store.names("runs/x")


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect to the endpoint URL"),
    ],
)
def test_a_store_that_cannot_be_reached_at_all_is_one_sentence(cluster, others, sentence):
    bare = replace(cluster, environment=cluster.environment | others | {"AWS_EC2_METADATA_DISABLED": "true"})
    done = bare.run(*cluster.train("--out", "s3://bucket/runs/x"), timeout=LATE)
    assert done.returncode == 2
    assert sentence in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""
