"""A user's own command on a real cluster: swept, trained with its plan, stopped, and refused where it is no good."""

import json
import signal
import sys

import psutil
import pytest

from jobs.cluster.processes import wait_until
from tests.support import reporting_programs as programs
from tests.support.known_curve_program import best_lr, mean_examples_to_target, step_seconds
from tests.support.ray_cluster import PATIENCE_SECONDS, ROOT

KNOWN_CURVE = f"{sys.executable} {ROOT}/tests/support/known_curve_program.py"
KNOWN_CURVE += " --batch-size {batch_size} --lr {lr} --seed {seed}"


def mean_seconds(batch_size):
    """Return the seconds to the target at the best learning rate, without noise."""
    steps = mean_examples_to_target(batch_size, best_lr(batch_size)) / batch_size
    return steps * step_seconds(batch_size)


def build_command(job, command, out, *flags):
    arguments = ["--command", command, "--out", out, *flags]
    return [sys.executable, "-m", f"jobs.{job}", *map(str, arguments)]


def list_processes(text):
    """Return the processes that have a text in their command line."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if text in " ".join(process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.fixture(scope="module")
def sweep(cluster, tmp_path_factory):
    """Folder of a sweep of the program with known curves."""
    out = tmp_path_factory.mktemp("command") / "sweep"
    flags = ("--target", 1, "--batch-size", "8:256", "--budget-seconds", 30)
    result = cluster.run(*build_command("sweep", KNOWN_CURVE, out, *flags))
    assert result.returncode in (0, 1), result.stdout + result.stderr  # 1: on a busy machine runs refute their plans
    return out


def test_sweep_finds_the_batch_that_is_known_to_be_best(sweep):
    plan = json.loads((sweep / "plan.json").read_text())
    batch = plan["plan"]["batch"]  # the best one is 57
    assert 32 <= batch <= 128 and mean_seconds(batch) <= mean_seconds(128)
    assert plan["setup"]["command"] == KNOWN_CURVE and plan["confirmations"]
    assert (sweep / "curve.html").exists()
    assert not list_processes("known_curve_program.py")


def test_trials_are_records_as_those_of_a_workload(sweep):
    trials = [json.loads(path.read_text()) for path in (sweep / "trials").glob("*.json")]
    assert {trial["status"] for trial in trials} <= {"reached_target", "pruned", "cut_off"}
    for trial in trials:
        assert trial["config"]["command"] == KNOWN_CURVE and trial["target"] == 1
        seen = trial["laps"][-1]["seen"] if trial["laps"] else 0
        assert sum(lap["examples"] for lap in trial["laps"]) == seen
        assert seen > 0 or trial["status"] == "cut_off"  # the budget may end before the first report
    assert any(trial["status"] == "reached_target" for trial in trials)


def test_training_takes_settings_and_target_of_the_plan(cluster, sweep, tmp_path):
    out = tmp_path / "run"
    result = cluster.run(*build_command("train", KNOWN_CURVE, out, "--plan", sweep))
    assert result.returncode == 0, result.stdout + result.stderr
    plan, record = (json.loads(path.read_text()) for path in (sweep / "plan.json", out / "record.json"))
    assert record["config"]["batch_size"] == plan["plan"]["batch"] and record["config"]["lr"] == plan["plan"]["lr"]
    assert (record["status"], record["target"]) == ("reached_target", 1)
    assert len((out / "laps.jsonl").read_text().splitlines()) == len(record["laps"])
    again = cluster.run(*build_command("train", KNOWN_CURVE, out, "--plan", sweep))
    assert "nothing to do" in again.stdout


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (programs.FAILING, "status 3; its last lines: loading"),
        (programs.ENDLESS, "reported no examples within"),
    ],
)
def test_sweep_of_a_command_without_reports_is_refused(cluster, tmp_path, code, words):
    command = programs.build_command(code)
    flags = ("--target", 1, "--budget-seconds", 5)
    result = cluster.run(*build_command("sweep", command, tmp_path / "sweep", *flags))
    assert result.returncode == 2, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert words in line and "[command-unusable]" in line
    assert not list_processes(code)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_a_command_end_with_the_run_whoever_their_parent_is(cluster, tmp_path, signal_number):
    code = programs.FORKING.replace("os.wait()", f"time.sleep(100{int(signal_number)})")
    process = cluster.start(*build_command("train", programs.build_command(code), tmp_path / "run"))
    wait_until(lambda: len(list_processes(code)) == 2 or process.poll() is not None)  # the command, and its grandchild
    process.send_signal(signal_number)
    process.communicate(timeout=PATIENCE_SECONDS)
    wait_until(lambda: not list_processes(code), PATIENCE_SECONDS)


def test_sigterm_ends_the_command_with_the_run(cluster, tmp_path):
    process = cluster.start(*build_command("train", programs.build_command(programs.ENDLESS), tmp_path / "run"))
    wait_until(lambda: list_processes(programs.ENDLESS + " 32") or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 143, stdout + stderr
    assert "runs the training command again" in stdout
    wait_until(lambda: not list_processes(programs.ENDLESS), PATIENCE_SECONDS)
