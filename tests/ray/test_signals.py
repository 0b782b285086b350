"""SIGTERM and Ctrl-C end commands that have started a Ray of their own, in one sentence and with all its processes."""

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from jobs.cluster.processes import find_descendants, is_alive, wait_until
from tests.support.ray_cluster import PATIENCE_SECONDS, ROOT

SWEEP = ("jobs.sweep", "--workload", "digits", "--workers", "1", "--budget-seconds", "60")
TRAIN = ("jobs.train", "--workload", "digits")


@pytest.fixture
def ray_folder():
    with tempfile.TemporaryDirectory(prefix="eq-", ignore_cleanup_errors=True) as folder:  # sockets need a short path
        yield folder


@pytest.mark.parametrize(
    ("command", "line", "signal_number", "sentence"),
    [
        (SWEEP, "timing ", signal.SIGTERM, "stopped; the same command resumes"),
        (TRAIN, "Ray at ", signal.SIGINT, "stopped before "),
    ],
)
def test_signal_ends_a_command_before_it_has_trained(command, line, signal_number, sentence, tmp_path, ray_folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": ray_folder, "PYTHONUNBUFFERED": "1"}
    arguments = [sys.executable, "-m", *command, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        arguments, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert any(output.startswith(line) for output in process.stdout)
    started = find_descendants(process.pid)
    process.send_signal(signal_number)
    _, errors = process.communicate()
    assert process.returncode == 143
    assert errors.splitlines()[-1].startswith(sentence)
    wait_until(lambda: not any(map(is_alive, started)), PATIENCE_SECONDS)
