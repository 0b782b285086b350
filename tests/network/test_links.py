"""A sweep over hosts with slow links recovers the rate of the links and predicts the step time of more hosts."""

import json
import subprocess
import sys

import pytest

from tests.network.hosts import create_lan, find_missing_requirement
from tests.network.spread_workers import start_spread_cluster
from tests.support.ray_cluster import ROOT

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
LINK_MEGABITS = 100.0


def test_sweep_of_two_hosts_recovers_the_link_rate_and_predicts_four_hosts(tmp_path):
    flags = ("--workload", "tests.network.wide_model:wide", "--workers", "1", "2", "--batch-size", "4:16")
    with create_lan(3, LINK_MEGABITS) as hosts, start_spread_cluster(hosts) as ray:
        sweep = ray.run(
            sys.executable,
            "-m",
            "jobs.sweep",
            *flags,
            "--budget-seconds",
            "100",  # a step takes a quarter of a second on these links, and timing at most 40 % of the budget
            "--exchanges",
            "none",
            "--out",
            str(tmp_path / "sweep"),
        )
        assert (tmp_path / "sweep" / "exchange.csv").exists(), sweep.stderr
    tables = [f"--{name}={tmp_path / 'sweep' / f'{name}.csv'}" for name in ("system", "exchange")]
    plan_command = (sys.executable, "-m", "jobs.plan", *tables, "--predict-at", "4x4", "--out", str(tmp_path / "plan"))
    assert subprocess.run(plan_command, cwd=ROOT).returncode == 0
    system = json.loads((tmp_path / "plan" / "plan.json").read_text())["system"]
    assert system["identifiable"] and not system["missing"]
    assert 8e-6 * system["links"]["between"]["bytes_a_second"]["value"] == pytest.approx(LINK_MEGABITS, rel=0.1)
    predicted = {row["batch"]: row["seconds"] for row in system["predictions"] if row["nodes"] == 4}
    # in a ring of four, each host sends 1.5 times as much as in a ring of two
    ring = 1.5 * system["parameters"]["between_volume"]
    assert all(ring < predicted[batch] < 2 * ring for batch in (4, 8, 16))
