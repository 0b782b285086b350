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


def run(*command, cwd):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize(("name", "module"), COMMAND_MODULES.items())
def test_every_command_is_listed_with_a_summary(name, module):
    assert importlib.util.find_spec(module)
    summary = read_summary(module)
    assert len(summary.split()) > 4
    assert any(line.split() == [name, *summary.split()] for line in format_help().splitlines())


def test_a_command_does_what_its_module_does(tmp_path):
    options = ("--system", str(DIGITS / "system.csv"), "--statistical", str(DIGITS / "statistical.csv"))
    script = run(SCRIPT, "plan", *options, "--out", str(tmp_path / "script"), cwd=tmp_path)
    module = run(sys.executable, "-m", "jobs.plan", *options, "--out", str(tmp_path / "module"), cwd=ROOT)
    assert (script.returncode, module.returncode) == (0, 0), script.stderr + module.stderr
    assert script.stdout.replace("/script", "") == module.stdout.replace("/module", "")
    assert json.loads((tmp_path / "script" / "plan.json").read_text())["plan"]


def test_a_workload_in_the_current_folder_is_found(tmp_path):
    (tmp_path / "mine.py").write_text("def nothing(config):\n    raise ValueError('reached the workload')\n")
    result = run(SCRIPT, "train", "--workload", "mine:nothing", "--out", "x", cwd=tmp_path)
    assert result.returncode == 2 and "reached the workload" in result.stderr


def test_an_unknown_command_is_refused_with_those_there_are(tmp_path):
    result = run(SCRIPT, "trian", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "'trian'" in result.stderr and "train" in result.stderr


def test_without_a_command_the_help_is_shown(tmp_path):
    result = run(SCRIPT, cwd=tmp_path)
    assert result.returncode == 0 and result.stdout.strip() == format_help()
    assert run(SCRIPT, "--version", cwd=tmp_path).stdout.startswith("equipoise ")
