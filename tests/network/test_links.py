"""A sweep over hosts with slow links finds what was set, and tells what more hosts would take."""

import json
import subprocess
import sys

import pytest

from tests.network.hosts import lan, possible
from tests.network.spread_workers import spread
from tests.support.ray_cluster import ROOT

pytestmark = pytest.mark.skipif(possible() is not None, reason=str(possible()))
RATE = 100.0  # Mbit/s


def test_a_sweep_of_two_hosts_recovers_the_rate_of_the_links_and_foretells_four(tmp_path):
    asked = ("jobs.sweep", "--workload", "tests.network.wide_model:wide", "--workers", "1", "2", "--batch-size", "4:16")
    with lan(3, RATE) as hosts, spread(hosts) as ray:
        swept = ray.run(sys.executable, "-m", *asked, "--budget-seconds", "20", "--out", str(tmp_path / "sweep"))
        assert (tmp_path / "sweep" / "exchange.csv").exists(), swept.stderr
    tables = [f"--{name}={tmp_path / 'sweep' / f'{name}.csv'}" for name in ("system", "exchange")]
    planning = (sys.executable, "-m", "jobs.plan", *tables, "--predict-at", "4x4", "--out", str(tmp_path / "plan"))
    assert subprocess.run(planning, cwd=ROOT).returncode == 0
    facts = json.loads((tmp_path / "plan" / "plan.json").read_text())["system"]
    assert facts["identifiable"] and not facts["missing"]
    assert 8e-6 * facts["links"]["between"]["bytes_a_second"]["value"] == pytest.approx(RATE, rel=0.1)
    at_four = {row["batch"]: row["seconds"] for row in facts["predictions"] if row["nodes"] == 4}
    ring = 1.5 * facts["parameters"]["between_volume"]  # what four hosts send, over what two do
    assert all(ring < at_four[batch] < 2 * ring for batch in (4, 8, 16))
