"""Processes that are started on a private Ray: their output, their groups and signals, and that none is left behind."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from jobs.cluster.private_ray import PrivateRay, block_signals, spawn_process
from jobs.cluster.processes import is_alive, wait_until

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
WRITE_BOTH = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
PRINT_MASK = "import signal; print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))"
START_CHILD = """
import os, sys
from jobs.cluster.private_ray import spawn_process
print(spawn_process(("sleep", "100"), dict(os.environ), None).pid, flush=True)
sys.stdin.read()
"""


def run_python(script, log=None, cwd=None):
    return spawn_process((sys.executable, "-c", script), dict(os.environ), log, cwd)


def test_output_goes_to_pipes_or_to_a_log(tmp_path):
    assert run_python(WRITE_BOTH).communicate() == ("out\n", "err\n")
    process = run_python(WRITE_BOTH, tmp_path / "log")
    assert process.communicate() == (None, None)
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_command_has_no_input_and_its_own_folder_and_group(tmp_path):
    script = "import os, sys; print(os.getpgid(0) == os.getpid(), os.getcwd(), repr(sys.stdin.read()))"
    output, _ = run_python(script, cwd=tmp_path).communicate()
    assert output.split() == ["True", str(tmp_path), "''"]


def test_command_has_the_environment_of_its_ray_and_is_kept():
    private_ray = PrivateRay({"RAY_ADDRESS": "127.0.0.1:1"}, head_pid=0)
    process = private_ray.start_command("/usr/bin/env")
    assert process.communicate()[0].split() == ["RAY_ADDRESS=127.0.0.1:1"]
    assert private_ray.processes == [process]
    assert PrivateRay({}, 0).processes == []


def test_signals_are_blocked_until_the_end_of_the_block():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not before & STOP_SIGNALS
    with block_signals() as outer:
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | STOP_SIGNALS
        with block_signals() as inner:
            assert inner == outer | {int(number) for number in STOP_SIGNALS}
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | STOP_SIGNALS
    assert outer == {int(number) for number in before}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    with pytest.raises(KeyError), block_signals():
        raise KeyError
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_command_receives_the_signals_that_are_held_back_during_its_start():
    before = sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    assert run_python(PRINT_MASK).communicate()[0] == f"{before}\n"


def test_command_ends_with_its_parent():
    parent = subprocess.Popen(
        [sys.executable, "-c", START_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(parent.stdout.readline()))
    try:
        assert is_alive(child)
        parent.kill()
        parent.communicate()
        wait_until(lambda: not is_alive(child), 20, "the end of a command whose parent was killed")
    finally:
        if is_alive(child):
            child.kill()
