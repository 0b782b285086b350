"""equipoise.sweep with a function of the main program, whose workers are processes that have never seen it."""

import sys

import pytest

from equipoise.planning.document import PlanDocument
from equipoise.runs.folder import read_record
from tests.support.ray_cluster import ROOT

SCRIPT = ROOT / "tests" / "support" / "sweep_in_notebook.py"


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("trials", ["accumulated", "real"])
def test_function_of_the_main_program_is_swept_and_nothing_of_it_is_kept(cluster, tmp_path, trials):
    out = tmp_path / "sweep"
    result = cluster.run(sys.executable, str(SCRIPT), str(out), trials)
    assert result.returncode == 0, result.stdout + result.stderr
    plan = PlanDocument.read(out / "plan.json")
    last_line = result.stdout.splitlines()[-1]
    assert last_line == f"{plan.setup.workload} {plan.status} {plan.plan.workers} x {plan.plan.batch}"
    records = [read_record(path) for path in (out / "trials").glob("*.json")]
    assert records and {record.config.workload for record in records} == {plan.setup.workload}
    assert plan.setup.workload.startswith("notebook:make_stripes@")
    kept = [path for path in out.rglob("*") if path.is_file() and b"HIDDEN_UNITS" in path.read_bytes()]
    assert kept == []
    train = (sys.executable, "-m", "jobs.train", "--workload", plan.setup.workload, "--plan", str(out))
    refused = cluster.run(*train, "--out", str(tmp_path / "run"))
    assert refused.returncode == 2 and "[workload-unknown]" in refused.stderr
