"""A sweep within a limit of memory times the sharding that its plan uses."""

import json
import sys

import pandas as pd
import pytest

MEMORY = "12MB"  # less than the whole model and its momentum, more than with the momentum in parts


@pytest.mark.slow
@pytest.mark.thorough
def test_a_sharding_is_timed_where_the_whole_model_does_not_fit(cluster, tmp_path):
    out = tmp_path / "sweep"
    result = cluster.run(
        *(sys.executable, "-m", "jobs.sweep", "--workload", "tests.network.wide_model:wide", "--workers", "2"),
        *("--batch-size", "16:64", "--memory", MEMORY, "--budget-seconds", "40", "--out", str(out)),
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    document = json.loads((out / "plan.json").read_text())
    timings = json.loads((out / "system" / "exchanges.json").read_text())["steps"]
    rows, verdicts = pd.read_csv(out / "system.csv"), {row["exchange"]: row for row in document["exchanges"]}
    assert timings
    for timed in timings:
        assert f"timing steps with {timed['exchange']} on 2 x {timed['batch']}" in result.stdout
        assert rows[rows.exchange == timed["exchange"]].batch.tolist() == [timed["batch"]]
        assert "by its closed form" not in verdicts[timed["exchange"]]["why"]
        assert verdicts[timed["exchange"]]["peak_bytes"] < 12e6
    assert (document["plan"] or {"exchange": ""})["exchange"] in ("", *(timed["exchange"] for timed in timings))
