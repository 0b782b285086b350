"""jobs.sweep on a real cluster: both curves, a plan, and a killed driver."""

import json
import os
import re
import signal
import sys

import numpy as np
import pandas as pd
import pytest

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from jobs.cluster.processes import wait_until
from jobs.ray_tune.single_worker_trial import build_trial_config
from tests.support.ray_cluster import PATIENCE_SECONDS


def build_sweep_command(out, *flags):
    arguments = [
        "--workload",
        "digits",
        "--workers",
        1,
        2,
        "--batch-size",
        "16:64",
        "--target",
        0.9,
        "--exchanges",
        "none",
        "--out",
        out,
        *flags,
    ]
    return [sys.executable, "-m", "jobs.sweep", *map(str, arguments)]


def read_ended_trials(out):
    """Return the text of the file of each trial that has ended, by file name."""
    files = {path.name: path.read_text() for path in (out / "trials").glob("*.json")} if out.exists() else {}
    unfinished = ("running", "cut_off")
    return {name: text for name, text in files.items() if json.loads(text)["status"] not in unfinished}


@pytest.mark.slow
def test_sweep_with_a_killed_driver_resumes_and_repeats_no_trial(cluster, tmp_path):
    out = tmp_path / "sweep"
    first = cluster.start(*build_sweep_command(out, "--budget-seconds", 200))  # killed after its third trial
    wait_until(lambda: len(read_ended_trials(out)) >= 3 or first.poll() is not None, PATIENCE_SECONDS, "three trials")
    assert first.poll() is None, first.communicate()
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = read_ended_trials(out)
    result = cluster.run(*build_sweep_command(out, "--budget-seconds", 20))
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    assert (out / "plan.json").exists(), result.stdout + result.stderr
    after = read_ended_trials(out)
    assert len(after) > len(before)
    assert {name: after[name] for name in before} == before
    facts = json.loads((out / "plan.json").read_text())
    assert facts["plan"]["workers"] in (1, 2)
    assert facts["plan"]["batch"] in (16, 32, 64)
    system, runs = (pd.read_csv(out / f"{name}.csv") for name in ("system", "statistical"))
    assert set(zip(system.workers, system.batch, strict=True)) == {(n, b) for n in (1, 2) for b in (16, 32, 64)}
    assert len(runs) == len(after) and not runs.duplicated(["global_batch", "lr", "seed"]).any()
    run = facts["confirmations"][-1]
    assert run["seconds"] > 0
    ratios = [run[name]["ratio"] for name in ("examples", "step")]
    assert np.prod(ratios) == pytest.approx(run["seconds"] / run["predicted"]["value"])
    assert (facts["status"] == "confirmed") == (result.returncode == 0)
    assert re.search(r"^plan (confirmed|refuted): a run with", result.stdout, re.MULTILINE)
    for page in ("curve.html", "scaling.html"):
        assert str(out / page) in result.stdout and (out / page).stat().st_size > 1e6


@pytest.mark.slow
@pytest.mark.thorough
def test_real_workers_and_a_single_stand_in_need_the_same_examples(cluster, tmp_path):
    out = tmp_path / "real"
    workload = "tests.support.workloads:with_little_memory"
    result = cluster.run(
        *(sys.executable, "-m", "jobs.sweep", "--workload", workload, "--workers", "2", "--batch-size", "16:64"),
        *("--exhaustive", "--seeds", "1", "--lr", "0.05:0.05", "--precision", "fp64", "--target", "0.8"),
        *("--trials", "real", "--exchanges", "none", "--track", "tensorboard", "--out", str(out)),
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr
    assert "skipped on 2 workers, too large for memory: 64 examples per worker" in result.stdout
    assert list((out / "tune").rglob("events.out.tfevents.*"))
    runs = pd.read_csv(out / "statistical.csv")
    assert runs.global_batch.tolist() == [32, 64] and runs.reached.all()
    for path in (out / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        real = TrainConfig(**record["config"])
        assert real.workers == 2
        single = Training(
            build_trial_config(
                real, (real.global_batch, real.lr, real.seed), 2, real_workers=False, max_unsplit_batch=32
            )
        )
        assert list(single.laps())
        assert single.examples_to_target == pytest.approx(record["examples_to_target"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.thorough
def test_sweep_to_a_low_metric_needs_several_evaluations(cluster, tmp_path):
    out = tmp_path / "falling"
    result = cluster.run(
        *(sys.executable, "-m", "jobs.sweep", "--workload", "tests.support.workloads:with_falling_metric"),
        *("--workers", "1", "--batch-size", "16:32", "--lr", "0.1:0.1", "--target", "0.6"),
        *("--exhaustive", "--seeds", "2", "--out", str(out)),
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    runs = pd.read_csv(out / "statistical.csv")
    assert runs.reached.any(), result.stdout
    for path in (out / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        metrics = [lap["metric"] for lap in record["laps"] if lap["metric"] is not None]
        if record["status"] == "reached_target":
            assert record["lower_is_better"] and min(metrics[:-1]) > 0.6 >= metrics[-1]
    facts = json.loads((out / "plan.json").read_text())
    assert facts["setup"]["lower_is_better"] and facts["setup"]["target"] == 0.6
    assert facts["plan"]["batch"] in (16, 32)
    reached = runs[runs.reached == 1].examples
    assert 0.5 * reached.min() < facts["plan"]["examples"] < 2 * reached.max()
    run = facts["confirmations"][-1]
    assert run["seconds"] > 0 and run["examples"]["value"] > 269  # a quarter of an epoch: the first evaluation
