"""Real processes are found, killed and told apart from later ones with the same id."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from jobs.cluster.processes import (
    find_descendants,
    find_free_ports,
    find_process_tree,
    find_raylets,
    first_ephemeral_port,
    is_alive,
    is_raylet,
    kill_processes,
    terminate_process_groups,
    wait_until,
)

LAST_PID_FILE = Path("/proc/sys/kernel/ns_last_pid")
PARENT_SCRIPT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "stubborn" else signal.SIG_DFL)
child = subprocess.Popen([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '100'])"])
print(child.pid, flush=True)
time.sleep(100)
"""


@pytest.fixture
def start_parent():
    """Start a process that leads a group and has a child with a child of its own; kill what is left of it."""
    started = []

    def start(manner="obedient"):
        command = [sys.executable, "-c", PARENT_SCRIPT, manner]
        parent = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append(parent)
        assert int(parent.stdout.readline())
        wait_until(lambda: len(find_descendants(parent.pid)) == 2, 20, "the start of a process and its child")
        return parent

    yield start
    for parent in started:
        kill_processes(find_process_tree(parent.pid))
        parent.wait()
        parent.stdout.close()


@pytest.mark.parametrize(("manner", "signal_number"), [("obedient", signal.SIGTERM), ("stubborn", signal.SIGKILL)])
def test_whole_tree_ends_with_its_group(start_parent, manner, signal_number):
    parent = start_parent(manner)
    tree = find_process_tree(parent.pid)
    assert len(tree) == 3 and all(map(is_alive, tree))
    terminate_process_groups([parent])
    assert not any(map(is_alive, tree)) and parent.returncode == -signal_number


def test_pipes_of_commands_are_closed_those_of_ended_ones_too():
    commands = [
        subprocess.Popen(
            ["/bin/sleep", seconds], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        for seconds in ("0", "100")
    ]
    silent = subprocess.Popen(["/bin/true"], start_new_session=True)
    commands[0].wait()
    terminate_process_groups([*commands, silent])
    assert [command.returncode for command in (*commands, silent)] == [0, -signal.SIGTERM, 0]
    assert all(pipe.closed for command in commands for pipe in (command.stdout, command.stderr))


def test_descendants_are_killed_though_their_parent_is_gone(start_parent):
    parent = start_parent()
    tree = find_process_tree(parent.pid)
    parent.kill()
    parent.wait()
    assert find_process_tree(parent.pid) == find_descendants(parent.pid) == set()
    assert sum(map(is_alive, tree)) == 2
    kill_processes(tree)
    assert not any(map(is_alive, tree))


def test_process_that_waits_for_its_parent_is_not_alive():
    child = subprocess.Popen(["/bin/true"])
    process = psutil.Process(child.pid)
    wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 20, "the end of a child")
    assert not is_alive(process)
    child.wait()
    assert not is_alive(process)


def spawn_with_id(pid):
    """Start a process with the id of one that has ended; skip the test where the kernel does not allow that."""
    for _ in range(20):  # another program may start a process in between
        try:
            LAST_PID_FILE.write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"cannot choose the id of a process: {error}")
        process = subprocess.Popen(["/bin/sleep", "100"])
        if process.pid == pid:
            return process
        process.kill()
        process.wait()
    pytest.skip("other processes take the id")


def test_new_process_with_the_id_of_an_ended_one_is_left_alone():
    first = subprocess.Popen(["/bin/sleep", "100"])
    ended = psutil.Process(first.pid)
    first.kill()
    first.wait()
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # starts are measured in ticks
    second = spawn_with_id(first.pid)
    try:
        assert is_alive(psutil.Process(second.pid)) and not is_alive(ended)
        kill_processes([ended])
        assert second.poll() is None
    finally:
        second.kill()
        second.wait()


def test_raylets_are_told_by_their_program_and_their_folder(tmp_path):
    program = shutil.copy("/bin/sleep", tmp_path / "raylet")
    assert not is_raylet(psutil.Process()) and not find_raylets(str(tmp_path))
    process = subprocess.Popen([program, "100"])
    try:
        wait_until(lambda: is_raylet(psutil.Process(process.pid)), 20, "the start of a program")
        assert find_raylets(str(tmp_path)) == {psutil.Process(process.pid)}
        assert find_raylets(f"{tmp_path}/none") == set()
    finally:
        process.kill()
        process.wait()
    assert find_raylets(str(tmp_path)) == set()


def test_free_ports_are_those_that_neither_a_program_nor_the_system_uses():
    with socket.create_server(("127.0.0.1", find_free_ports(1)[0])) as server:
        ports = find_free_ports(5000)
        assert server.getsockname()[1] not in ports and len({*ports}) == 5000
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert max(ports) < server.getsockname()[1]


def can_listen(port):
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def test_free_ports_lie_between_those_of_workers_and_those_of_the_system():
    first_of_system = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert first_ephemeral_port() == first_of_system
    end = max(first_of_system, 32_768)
    lowest, highest = ([port for port in ports if can_listen(port)] for ports in ((20_000, 20_001), (end - 2, end - 1)))
    ports = find_free_ports(1_000_000)
    assert min(ports) >= 20_000 and max(ports) < end
    assert {*lowest, *highest} <= {*ports}


def test_as_many_free_ports_are_returned_as_requested_in_random_order():
    assert [len(find_free_ports(count)) for count in (0, 1, 3)] == [0, 1, 3]
    ports = find_free_ports(50)
    assert ports != sorted(ports) and ports != find_free_ports(50)


def test_value_of_the_condition_is_returned_once_it_is_true():
    values = iter([0, "", None, "ready", "later"])
    assert wait_until(lambda: next(values), 20) == "ready"


def test_condition_that_stays_false_ends_in_a_timeout():
    calls = []
    with pytest.raises(TimeoutError, match=r"^the end of time took longer than 0 s$"):
        wait_until(lambda: calls.append(1), 0.2, "the end of time")
    assert 2 <= len(calls) <= 6  # it sleeps in between
