"""Ctrl-C and SIGTERM end a command in one sentence while it still imports its libraries."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ray_cluster import ROOT

SLOW_IMPORT = """
import sys
print("importing", flush=True)
sys.stdin.read()
"""
EQUIPOISE = str(Path(sys.executable).with_name("equipoise"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("command", "library"),
    [
        ((sys.executable, "-m", "jobs.train"), "torch"),
        ((sys.executable, "-m", "jobs.plan"), "pandas"),
        ((sys.executable, "-m", "jobs.captures"), "PIL"),
        ((sys.executable, "-m", "dashboards.build"), "plotly"),
        ((EQUIPOISE, "publish"), "torch"),
    ],
)
def test_command_that_is_stopped_during_its_imports_says_so(command, library, number, tmp_path):
    (tmp_path / f"{library}.py").write_text(SLOW_IMPORT)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_interrupts,
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate()
    assert (process.returncode, errors.strip()) == (143, "stopped")


def restore_interrupts():
    """Do not inherit an ignored SIGINT, which a program in the background of a script has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
