"""Processes of a simulated host get the part of a core that was set, whenever they were started."""

import subprocess
import sys

import pytest

from tests.network.cpu_groups import find_group_folder, find_missing_cpu_groups
from tests.network.hosts import create_lan, find_missing_requirement

MISSING = find_missing_requirement() or find_missing_cpu_groups()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
BUSY_SCRIPT = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
copies = int(sys.argv[1])
for _ in range(copies - 1):
    if not os.fork():
        break
start, used = time.monotonic(), time.process_time()
while time.monotonic() < start + 3:
    pass
cores = (time.process_time() - used) / (time.monotonic() - start)
os.write(1, b"%.6f\\n" % cores)  # at once: lines of several processes must not mix
"""


def start_busy_loops(host, copies):
    """Start a process on a host that will be busy in so many copies for 3 s, once it gets a line."""
    command = host.build_command(sys.executable, "-c", BUSY_SCRIPT, str(copies))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def measure_cores(process):
    """Return the cores that all copies of a started process got together."""
    output, _ = process.communicate("\n", timeout=60)
    return sum(map(float, output.split()))


@pytest.mark.parametrize(("cores", "copies"), [(0.2, 1), (0.6, 1), (0.5, 3)])
def test_busy_loops_get_their_share_of_a_core(cores, copies):
    with create_lan(1) as (host,):
        host.limit_cpu(cores)
        assert measure_cores(start_busy_loops(host, copies)) == pytest.approx(cores, rel=0.15)


def test_quota_holds_for_processes_that_run_already_and_can_be_changed():
    with create_lan(2) as (host, other):
        processes = [start_busy_loops(host, 1) for _ in range(2)]
        host.limit_cpu(0.3)
        assert measure_cores(processes[0]) == pytest.approx(0.3, rel=0.15)
        host.limit_cpu(0.15)
        assert measure_cores(processes[1]) == pytest.approx(0.15, rel=0.15)
        assert not find_group_folder(other.name).exists()
    assert not find_group_folder(host.name).exists()
