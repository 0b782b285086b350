"""Examples that need no service run as their docstrings say, and find what they promise."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec

import nbformat
import pytest
from nbclient import NotebookClient

from equipoise import TrainConfig, load_workload
from equipoise.drift.corruptions import adjust_exposure
from equipoise.runs.reports import parse_json_report
from jobs.cluster.private_ray import ENVIRONMENT_BIN
from tests.support.example_programs import EXAMPLES, build_environment, run_example, write_png_files
from tests.support.ray_cluster import ROOT

NOTEBOOK = EXAMPLES / "train_in_notebook.ipynb"
TABLES = ROOT / "tests" / "data" / "digits"
MAX_NOTEBOOK_BYTES = 30_000


def test_own_workload_reaches_its_target():
    *_, last_line = run_example("own_workload.py").splitlines()
    accuracy = float(re.search(r"^reached_target: ([\d.]+)% of the test images", last_line)[1])
    assert accuracy > 90


def test_own_workload_is_found_by_the_name_that_its_docstring_gives():
    script = "from equipoise import *; print(load_workload(TrainConfig(workload='own_workload:discs_or_rings')).name)"
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, cwd=EXAMPLES, env=build_environment(), capture_output=True, text=True)
    assert result.stdout == "discs-or-rings\n", result.stderr


def test_two_torchrun_workers_print_the_metrics_of_one_that_accumulates():
    outputs = [
        run_example(
            *("train_with_torchrun.py", "--grad-accumulation", accumulation),
            launcher=(str(ENVIRONMENT_BIN / "torchrun"), "--standalone", "--nproc-per-node", str(workers)),
        )
        for workers, accumulation in ((2, 1), (1, 2))
    ]
    together, alone = (re.findall(r"metric ([\d.]+)", output) for output in outputs)
    assert len(together) > 3 and together == alone
    assert "reached_target on 2 workers" in outputs[0] and "reached_target on 1 workers" in outputs[1]


def test_plan_is_made_of_two_tables():
    printed = run_example("plan_from_csv.py", TABLES / "system.csv", TABLES / "statistical.csv", "--workers", 4)
    assert re.search(r"^plan: 1 workers x batch \d+ at lr 0\.\d+$", printed, re.MULTILINE)
    assert re.search(r"^ +1 x \d+ +[\d.]+ s +[\d.]+ worker-seconds +measured$", printed, re.MULTILINE)
    assert "note: left out: at global batches 512, 1,024" in printed


def test_worst_of_three_folders_gives_the_status(monitored_digits, tmp_path):
    images = load_workload(TrainConfig(workload="digits")).test.inputs[:120]
    folders = {"monday": images, "tuesday": adjust_exposure(images, -1.5), "wednesday": images[:8]}
    for name, pictures in folders.items():
        write_png_files(pictures, tmp_path / name)
    arguments = (monitored_digits, *(tmp_path / name for name in folders), "--out", tmp_path / "out")
    lines = run_example("drift_of_a_folder.py", *arguments, status=3).splitlines()
    monday, tuesday, wednesday = (line.removeprefix(f"{tmp_path}/") for line in lines)
    assert monday.startswith("monday: ok: ") and wednesday.startswith("wednesday: unknown: ")
    assert tuesday.startswith("tuesday: drift: exposure (darker)")
    assert json.loads((tmp_path / "out" / "tuesday" / "verdict.json").read_text())["state"] == "drift"


@pytest.fixture(scope="module")
def executed_notebook():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}).execute()
    return notebook


def test_notebook_runs_to_its_end(executed_notebook):
    outputs = "".join(
        output["data"]["text/plain"]
        for cell in executed_notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    )
    assert outputs.count("reached_target") == 3


def test_notebook_is_stored_as_run_from_top_to_bottom_and_small():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(output["output_type"] == "execute_result" for cell in code for output in cell.outputs)
    assert NOTEBOOK.stat().st_size < MAX_NOTEBOOK_BYTES


def read_observation(printed):
    """Return the steps and the noise scale that an example has printed of what it observed."""
    steps = int(re.search(r"^(\d+) steps of \d+ examples: compute [\d.]+ ms, exchange", printed, re.MULTILINE)[1])
    return steps, float(re.search(r"^noise scale: about ([\d,]+) examples$", printed, re.MULTILINE)[1].replace(",", ""))


def test_loop_on_two_workers_is_observed(tmp_path):
    launcher = (str(ENVIRONMENT_BIN / "torchrun"), "--standalone", "--nproc-per-node", "2")
    steps, noise = read_observation(run_example("observe_ddp.py", "--out", tmp_path / "run", launcher=launcher))
    assert steps == 138 and 1 < noise < 10_000
    assert (tmp_path / "run" / "system.csv").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("program", "framework", "steps"),
    [("lightning_callback.py", "lightning", 184), ("transformers_callback.py", "transformers", 96)],
)
def test_trainer_of_a_framework_is_observed(program, framework, steps, tmp_path):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: make test-frameworks")
    observed_steps, noise = read_observation(run_example(program, "--out", tmp_path / "run"))
    assert observed_steps == steps and 1 < noise < 10_000


def test_sklearn_program_reports_what_a_sweep_reads():
    reports = [parse_json_report(line) for line in run_example("sklearn_program.py", "--batch-size", 64).splitlines()]
    assert reports[0].examples == 0 and all(report.metric is not None for report in reports[1:])
    assert [report.examples for report in reports] == sorted(report.examples for report in reports)
    assert max(report.metric for report in reports[1:]) > 0.92
