"""A detector from its sweep to a run with its plan, on a real cluster: the metric is counted from rows of pictures."""

import sys

import pandas as pd
import pytest

from equipoise.planning.document import PlanDocument
from equipoise.runs.folder import read_record

TARGET = 0.1  # mAP, after some hundred examples


@pytest.mark.slow
def test_detector_is_swept_planned_and_trained_with_the_plan(cluster, tmp_path):
    out, run = tmp_path / "sweep", tmp_path / "run"
    result = cluster.run(
        *(sys.executable, "-m", "jobs.sweep", "--workload", "shelf", "--workers", "1", "2", "--batch-size", "8:32"),
        *("--target", str(TARGET), "--eval-every", "80", "--budget-seconds", "60", "--out", str(out)),
        timeout=400,
    )
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    document = PlanDocument.read(out / "plan.json")
    assert document.setup.goal.describe() == f"at least {TARGET} mAP"
    assert document.plan.examples > 0 and document.confirmations
    assert pd.read_csv(out / "statistical.csv").reached.any(), result.stdout
    assert f"with a target of at least {TARGET} mAP" in (out / "curve.html").read_text()
    command = ("--workload", "shelf", "--target", str(TARGET), "--eval-every", "80", "--plan", str(out))
    result = cluster.run(sys.executable, "-m", "jobs.train", *command, "--out", str(run), timeout=300)
    assert result.returncode == 0, result.stderr
    record = read_record(run / "record.json")
    assert record.config.global_batch == document.plan.global_batch
    assert record.metric_name == "mAP" and record.reached and record.test > TARGET / 2
    assert f"at least {TARGET} mAP on validation" in result.stdout
    assert "test mAP" in (run / "run.html").read_text()
