"""The console script `equipoise`: every command under one name."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import LOOPBACK_ENV
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


@pytest.mark.parametrize("name", ["pages", "validate-cluster"])
def test_help_of_a_command_with_positional_arguments_has_its_name_and_its_paragraphs(name, tmp_path):
    result = run_command(SCRIPT, name, "--help", cwd=tmp_path)
    assert result.stdout.startswith(f"usage: equipoise {name} ")
    assert f"\n\n{read_summary(COMMAND_MODULES[name])}\n\n" in result.stdout


ECHO_MODULE = """
import json, os, sys
def main():
    print(json.dumps({"argv": sys.argv, "isolated": "RAY_AUTH_TOKEN" in os.environ, "file": __file__}))
    return 3
"""
RUN_ECHO = """
import sys
from jobs.cli.main import COMMAND_MODULES, main
COMMAND_MODULES[sys.argv[1]] = "echo_command"
sys.exit(main())
"""


def run_echo(name, *arguments, cwd, paths=(ROOT,)):
    """Run a command that prints what it is called with; return its exit status and that."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "RAY_TMPDIR": str(cwd)}
    command = [sys.executable, "-P", "-c", RUN_ECHO, name, *arguments]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    return result.returncode, json.loads(result.stdout)


@pytest.mark.parametrize(("name", "is_isolated"), [("train", True), ("mine", True), ("local-cluster", False)])
def test_command_gets_its_arguments_and_a_ray_of_its_own(tmp_path, name, is_isolated):
    (tmp_path / "echo_command.py").write_text(ECHO_MODULE)
    status, call = run_echo(name, "--out", "x y", cwd=tmp_path)
    assert status == 3 and call["argv"] == [f"equipoise {name}", "--out", "x y"] and call["isolated"] == is_isolated


def test_current_folder_comes_first(tmp_path):
    for folder in (tmp_path, tmp_path / "installed"):
        folder.mkdir(exist_ok=True)
        (folder / "echo_command.py").write_text(ECHO_MODULE)
    _, call = run_echo("mine", cwd=tmp_path, paths=(tmp_path / "installed", ROOT))
    assert Path(call["file"]) == tmp_path / "echo_command.py"


def test_folders_with_the_names_of_packages_do_not_hide_them(tmp_path):
    for name in ("equipoise/runs", "jobs", "dashboards", "services"):  # as beside a clone, or of other programs
        (tmp_path / name).mkdir(parents=True)
    code = "import equipoise.runs.record, jobs.train, dashboards.page, services.limits"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_serve_becomes_the_command_of_ray_serve(tmp_path):
    python, serve = tmp_path / "python", tmp_path / "serve"
    python.symlink_to(sys.executable)
    serve.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\nenv\nexit 5\n")
    serve.chmod(0o755)
    script = "from jobs.cli.main import main; main()"
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "MINE": "kept"}
    command = [str(python), "-c", script, "serve", "bundle=a b", "port=1"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    arguments, variables = result.stdout.splitlines()[:4], result.stdout.splitlines()[4:]
    assert result.returncode == 5, result.stderr
    assert arguments == ["run", "services.app:build", "bundle=a b", "port=1"]
    assert {"MINE=kept", *(f"{name}={value}" for name, value in LOOPBACK_ENV.items())} <= {*variables}


def test_summaries_are_aligned_two_blanks_after_the_longest_name():
    names = [*COMMAND_MODULES, "serve"]
    lines = format_help().splitlines()[-len(names) :]
    column = 2 + max(map(len, names)) + 2
    assert [line[:column].strip() for line in lines] == names
    assert all(line[column - 1] == " " != line[column] for line in lines)


def test_module_without_a_text_has_no_summary():
    assert [read_summary(module) for module in ("jobs.cli", "nothing_of_this_name", "tests")] == ["", "", ""]


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_and_version_end_without_an_error(tmp_path, flag):
    result = run_command(SCRIPT, flag, cwd=tmp_path)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, format_help(), "")
    assert run_command(SCRIPT, "--version", cwd=tmp_path).returncode == 0
