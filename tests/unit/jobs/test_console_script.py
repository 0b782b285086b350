"""The console script `equipoise`: every command under one name."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli.main import COMMAND_MODULES, format_help, read_summary

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "tests" / "data" / "digits"
SCRIPT = str(Path(sys.executable).with_name("equipoise"))


def run_command(*command, cwd):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize(("name", "module"), COMMAND_MODULES.items())
def test_every_command_is_listed_with_a_summary(name, module):
    assert importlib.util.find_spec(module)
    summary = read_summary(module)
    assert len(summary.split()) > 4
    assert any(line.split() == [name, *summary.split()] for line in format_help().splitlines())


def test_console_script_and_module_give_the_same_output(tmp_path):
    options = ("--system", str(DIGITS / "system.csv"), "--statistical", str(DIGITS / "statistical.csv"))
    script = run_command(SCRIPT, "plan", *options, "--out", str(tmp_path / "script"), cwd=tmp_path)
    module = run_command(sys.executable, "-m", "jobs.plan", *options, "--out", str(tmp_path / "module"), cwd=ROOT)
    assert (script.returncode, module.returncode) == (0, 0), script.stderr + module.stderr
    assert script.stdout.replace("/script", "") == module.stdout.replace("/module", "")
    assert json.loads((tmp_path / "script" / "plan.json").read_text())["plan"]


def test_workload_in_the_current_folder_is_found(tmp_path):
    (tmp_path / "mine.py").write_text("def nothing(config):\n    raise ValueError('reached the workload')\n")
    result = run_command(SCRIPT, "train", "--workload", "mine:nothing", "--out", "x", cwd=tmp_path)
    assert result.returncode == 2 and "reached the workload" in result.stderr


def test_unknown_command_is_refused_with_the_existing_ones(tmp_path):
    result = run_command(SCRIPT, "trian", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "'trian'" in result.stderr and "train" in result.stderr


def test_help_is_printed_without_a_command(tmp_path):
    result = run_command(SCRIPT, cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.strip() == format_help()
    assert run_command(SCRIPT, "--version", cwd=tmp_path).stdout.startswith("equipoise ")
