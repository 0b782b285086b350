"""From a sweep to a service by URL: real commands on a real Ray cluster with a real S3 server."""

import json
import os
import re
import signal
import sys
from contextlib import suppress
from http.client import HTTPConnection
from io import BytesIO

from PIL import Image

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.cluster.private_ray import ENVIRONMENT_BIN
from jobs.cluster.processes import find_free_ports, wait_until
from tests.support.ray_cluster import ROOT

SERVE = str(ENVIRONMENT_BIN / "serve")
TIMEOUT_SECONDS = 400  # enough for a machine that is shared with other work


def build_job_command(name, *arguments):
    return [sys.executable, "-m", f"jobs.{name}", *map(str, arguments)]


def test_sweep_plan_train_publish_and_serve_write_nothing_to_the_local_disk(cluster, store):
    sweep = build_job_command(
        "sweep", "--workload", "digits", "--workers", 1, 2, "--batch-size", "16:32", "--target", 0.9
    )
    sweep += ["--exhaustive", "--seeds", "1", "--lr", "0.05:0.05", "--exchanges", "none", "--out", "s3://bucket/sweep"]
    process = cluster.start(*sweep)
    wait_until(lambda: read_ended_trials(store, "sweep/trials") or process.poll() is not None, TIMEOUT_SECONDS)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = read_ended_trials(store, "sweep/trials")
    assert before, process.communicate()
    result = cluster.run(*sweep, timeout=TIMEOUT_SECONDS)
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    assert not re.search(r"^timing ", result.stdout, re.MULTILINE)
    after = read_ended_trials(store, "sweep/trials")
    assert len(after) == 3 and {name: after[name] for name in before} == before
    entries = {name.split("/")[0] for name in store.list_names("sweep")}
    assert entries == {
        *("confirm", "curve.html", "plan.json", "scaling.html", "setup.json"),
        *("statistical.csv", "system", "system.csv", "trial.json", "trials"),
    }
    swept = store.read_json("sweep/plan.json")
    tables = ("--system", "s3://bucket/sweep/system.csv", "--statistical", "s3://bucket/sweep/statistical.csv")
    result = cluster.run(
        *build_job_command("plan", *tables, "--predict-at", "1x2", "--out", "s3://bucket/plan"), timeout=TIMEOUT_SECONDS
    )
    assert result.returncode == 0, result.stderr
    plan = store.read_json("plan/plan.json")["plan"]
    first_run = swept["confirmations"][0]
    assert [plan[name] for name in ("workers", "batch")] == [first_run[name] for name in ("workers", "batch")]
    runs = {name.split("/")[1] for name in store.list_names("sweep") if name.startswith("confirm/")}
    assert len(runs) == len(swept["confirmations"])
    run = next(name for name in runs if name.startswith(f"{plan['workers']}x{plan['batch']}-"))
    settings = ("--workers", plan["workers"], "--batch-size", plan["batch"], "--lr", plan["lr"], "--target", 0.9)
    fine_tune = cluster.build_train_command(
        *settings, "--init-from", f"s3://bucket/sweep/confirm/{run}", "--out", "s3://bucket/tuned"
    )
    result = cluster.run(*fine_tune, timeout=TIMEOUT_SECONDS)
    assert result.returncode == 0, result.stderr
    assert "reusing the classifier rows of 10 of 10 classes" in result.stdout
    publish = build_job_command(
        "publish", "--run", "s3://bucket/tuned", "--plan", "s3://bucket/plan", "--no-native", "--no-drift"
    )
    result = cluster.run(*publish, "--out", "s3://bucket/bundles/digits", timeout=TIMEOUT_SECONDS)
    assert result.returncode == 0, result.stderr
    assert store.read_json("bundles/digits/bundle.json")["plan"]["plan"]["batch"] == plan["batch"]
    assert not list(ROOT.glob("s3*"))
    assert predict_with_service(cluster) == (200, store.read_json("bundles/digits/bundle.json")["digest"][:12])


def read_ended_trials(store, folder):
    """Return the contents of the files of trials that have ended, by file name."""
    trials = {name: store.read_json(f"{folder}/{name}") for name in store.list_names(folder)}
    return {name: trial for name, trial in trials.items() if trial["status"] in ("reached_target", "max_examples")}


def predict_with_service(cluster):
    """Serve the bundle, send it a test image, and return the status of the reply and the version that answered."""
    test = load_workload(TrainConfig(workload="digits")).test
    image = BytesIO()
    Image.fromarray(test.inputs[0][0].numpy()).save(image, "PNG")
    (port,) = find_free_ports(1)
    process = cluster.start(
        SERVE, "run", "services.app:build", "bundle=s3://bucket/bundles/digits", f"port={port}", "drift=false"
    )
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)

        def is_ready_or_ended():
            with suppress(OSError):
                connection.request("GET", "/ready")
                reply = connection.getresponse()
                reply.read()
                return reply.status == 200
            connection.close()
            return process.poll() is not None

        wait_until(is_ready_or_ended, TIMEOUT_SECONDS)
        assert process.poll() is None, process.communicate()
        connection.request("POST", "/predict", image.getvalue(), {"content-type": "image/png"})
        reply = connection.getresponse()
        result = reply.status, json.load(reply)["version"]
        connection.close()
        return result
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT_SECONDS)
        cluster.shut_down_serve()
