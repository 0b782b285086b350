"""A sweep between hosts tries another way of exchange where links are slow, and adds nothing where they are fast."""

import json
import os
import signal
import sys
import time

import pandas as pd
import pytest

from tests.network.hosts import create_lan, find_missing_requirement
from tests.network.spread_workers import start_spread_cluster

pytestmark = [
    pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement())),
    pytest.mark.slow,
]
SLOW_MBIT = 200.0


def build_command(out, workload, *flags):
    return (sys.executable, "-m", "jobs.sweep", "--workload", workload, "--workers", "2", *flags, "--out", str(out))


def finish_sweep(ray, out, command):
    """Run a sweep to its end and return its output and its plan."""
    result = ray.run(*command, timeout=900)
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    return result.stdout, json.loads((out / "plan.json").read_text())


def read_ended_trials(folder):
    """Return the text of the file of each trial that has ended, by file name."""
    files = {path.name: path.read_text() for path in folder.glob("*.json")}
    return {name: text for name, text in files.items() if json.loads(text)["status"] not in ("running", "cut_off")}


def kill_after_a_trial(ray, out, command):
    """Start a sweep, kill it once it has tried another way of exchange, and return the trials that had ended."""
    process = ray.start(*command)
    deadline = time.monotonic() + 600
    while not read_ended_trials(out / "trials" / "exchanges"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return read_ended_trials(out / "trials" / "exchanges")


def test_sweep_on_slow_links_plans_with_another_way_of_exchange_and_goes_on_after_it_was_killed(tmp_path):
    out = tmp_path / "sweep"
    search = ("--batch-size", "64:128", "--lr", "0.125:0.125", "--budget-seconds", "300")  # one rate for exact sums
    flags = (*search, "--exchanges", "local:16")
    command = build_command(out, "tests.network.wide_model:wider", *flags)
    with create_lan(3, SLOW_MBIT) as hosts, start_spread_cluster(hosts) as ray:
        before = kill_after_a_trial(ray, out, command)
        text, document = finish_sweep(ray, out, command)
    after = read_ended_trials(out / "trials" / "exchanges")
    assert {name: after[name] for name in before} == before
    system, runs = (pd.read_csv(out / f"{name}.csv", keep_default_na=False) for name in ("system", "statistical"))
    timed = system[system.exchange == "local:16"].astype({"seconds": float, "sent_bytes": float})
    assert len(timed) >= 1 and (timed.seconds < 0.6 * system[system.exchange == ""].seconds.astype(float).min()).all()
    assert timed.sent_bytes.iloc[0] == pytest.approx(2 * 11_083_816 / 16, rel=0.01)  # weights and momentum
    tried = runs[runs.exchange != ""]
    assert 3 <= len(tried) == len(after) <= 13 and (tried.workers.astype(int) == 2).all()  # one was killed
    verdict = next(verdict for verdict in document["exchanges"] if verdict["exchange"].startswith("local:"))
    assert verdict["speedup"]["value"] > 1.05, text
    trained = [run for run in document["confirmations"] if run["exchange"]]
    assert trained and trained[0]["exchange"].startswith("local:"), text
    assert any(not run["exchange"] for run in document["confirmations"])  # the best plan with exact sums, in turns
    plan = document["plan"]
    assert plan["exchange"] == trained[0]["exchange"] or document["confirmations"][-1]["exchange"] == ""


def test_sweep_on_fast_links_adds_no_trial(tmp_path):
    out = tmp_path / "sweep"
    workload = "tests.network.wide_model:deep"
    with create_lan(3) as hosts, start_spread_cluster(hosts) as ray:
        command = build_command(out, workload, "--batch-size", "32:64", "--budget-seconds", "120")
        text, document = finish_sweep(ray, out, command)
    assert "no other way of exchange is tried" in text
    assert not (out / "trials" / "exchanges").exists() and not (out / "system" / "exchanges.json").exists()
    assert "exchange" not in pd.read_csv(out / "system.csv") and "exchange" not in pd.read_csv(out / "statistical.csv")
    assert document["plan"]["exchange"] == ""
    assert {verdict["verdict"] for verdict in document["exchanges"]} == {"no gain"}
