"""Runs of real training commands: how each ends, and that nothing is left running."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from jobs.cluster.processes import wait_until
from jobs.user_command.command_process import build_environment, find_secrets, mask_secrets
from jobs.user_command.command_run import CommandFolders, CommandRun
from jobs.user_command.reaper import find_marked_processes
from tests.support import reporting_programs as programs

MACHINE = HardwareFacts()


def start_run(code, tmp_path, **options):
    config = TrainConfig(command=programs.build_command(code), **options)
    return CommandRun(config, CommandFolders(str(tmp_path), str(tmp_path)))


def follow_to_end(run):
    deadline = time.monotonic() + 60
    while run.status is None and time.monotonic() < deadline:
        run.follow(1.0)
    assert not find_marked_processes(run.process.mark)
    return run.build_record(MACHINE)


def test_a_run_ends_at_its_target(tmp_path):
    record = follow_to_end(start_run(programs.RISING, tmp_path, target=0.55))
    assert record.status == "reached_target"
    assert record.examples_to_target == pytest.approx(55)
    assert [lap.seen for lap in record.laps] == [10, 20, 30, 40, 50, 60]


def test_a_run_ends_at_its_number_of_examples(tmp_path):
    record = follow_to_end(start_run(programs.RISING, tmp_path, max_examples=30))
    assert (record.status, record.laps[-1].seen, record.target) == ("max_examples", 30, None)


def test_a_falling_metric_reaches_a_target_below(tmp_path):
    code = programs.RISING.replace("k / 10", "10 / k")
    record = follow_to_end(start_run(code, tmp_path, target=2.5, lower_is_better=True))
    assert record.examples_to_target == pytest.approx(40)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (programs.FAILING, "status 3; its last lines: loading"),
        (programs.SILENT, "printed nothing"),
        (programs.GARBAGE, "reported no examples"),
        (programs.BACKWARDS, "10 examples after 20"),
        (programs.NAN, "the metric was nan after 20 examples"),
    ],
)
def test_a_command_that_fails_or_reports_badly_is_a_failed_run_with_the_reason(tmp_path, code, words):
    record = follow_to_end(start_run(code, tmp_path, target=1.0))
    assert record.status == "failed"
    assert words in record.reason and "\n" not in record.reason


def test_a_command_that_ends_before_its_target_says_so(tmp_path):
    record = follow_to_end(start_run(programs.ENDS_EARLY, tmp_path, target=1.0))
    assert (record.status, record.reason) == ("max_examples", "the command ended by itself")


@pytest.mark.parametrize("code", [programs.ENDLESS, programs.DEAF, programs.FLOODING])
def test_a_command_that_never_ends_is_stopped(tmp_path, code):
    run = start_run(code, tmp_path)
    wait_until(lambda: run.process.last_lines)
    run.follow(0.1)
    assert run.status is None
    run.stop()
    assert not psutil.pid_exists(run.process.process.pid) and not find_marked_processes(run.process.mark)


def test_processes_that_a_command_leaves_behind_are_killed(tmp_path):
    run = start_run(programs.FORKING, tmp_path)
    wait_until(lambda: run.process.process.poll() is not None)
    assert find_marked_processes(run.process.mark)  # in a session of its own, with another parent
    record = follow_to_end(run)
    assert record.laps[-1].seen == 10


def test_a_program_that_does_not_exist_is_a_failed_run(tmp_path):
    run = CommandRun(TrainConfig(command="no-such-program {lr}"), CommandFolders(str(tmp_path), str(tmp_path)))
    run.follow(1.0)
    record = run.build_record(MACHINE)
    assert record.status == "failed" and "no-such-program" in record.reason


def test_secrets_of_the_environment_are_not_in_the_record(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "s3cret-value")
    record = follow_to_end(start_run(programs.FAILING, tmp_path))
    assert "the key is ***" in record.reason
    assert "s3cret-value" not in str(record.to_json())


@pytest.mark.parametrize("report", ['{"examples": "s3cret-value"}', '{"examples": 10, "metric": "s3cret-value"}'])
def test_secrets_in_a_report_are_not_in_the_record(tmp_path, monkeypatch, report):
    monkeypatch.setenv("MY_API_KEY", "s3cret-value")
    record = follow_to_end(start_run(f"print({report!r})", tmp_path))
    assert record.status == "failed" and "***" in record.reason and "s3cret-value" not in record.reason


def test_a_command_without_any_metric_is_a_failed_run(tmp_path):
    record = follow_to_end(start_run("print('{\"examples\": 10}')", tmp_path, target=1.0))
    assert record.status == "failed" and "no metric" in record.reason


@pytest.mark.parametrize(("activated", "is_first"), [(None, True), ("/opt/other", False)])
def test_python_is_that_of_this_process_unless_another_environment_is_active(monkeypatch, activated, is_first):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    if activated:
        monkeypatch.setenv("VIRTUAL_ENV", activated)
    variables = build_environment("mark", 3)
    assert variables["PATH"].startswith(str(Path(sys.executable).parent)) == is_first
    assert variables["PATH"].endswith("/usr/bin")
    assert (variables["OMP_NUM_THREADS"], variables["EQUIPOISE_COMMAND_ID"]) == ("3", "mark")


def test_secrets_are_values_of_variables_named_so_line_by_line_and_passwords_in_urls():
    environment = {
        "KEY": "abc",
        "HOME": "/home/me/abcdef",
        "DB_PASSWORD": "hunter22",
        "TLS_KEY": "first-line\nsecond-line\n",
        "DATABASE_URL": "postgres://me:pa55word@host/x",
    }
    assert find_secrets(environment) == ["second-line", "first-line", "hunter22", "pa55word"]
    text = "abc /home/me/abcdef hunter22 second-line me:pa55word@host"
    assert mask_secrets(text, find_secrets(environment)) == "abc /home/me/abcdef *** *** me:***@host"
