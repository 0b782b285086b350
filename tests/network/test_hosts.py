"""Simulated hosts reach each other at the rate that was set, until a cable is pulled or a host dies."""

import subprocess
import sys
import time

import pytest

from tests.network.hosts import create_lan, find_missing_requirement, run_checked

pytestmark = pytest.mark.skipif(find_missing_requirement() is not None, reason=str(find_missing_requirement()))
RECEIVE_SCRIPT = """
import socket, sys, time
with socket.create_server((sys.argv[1], 5001)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    start, received = time.monotonic(), 0
    while part := connection.recv(1 << 20):
        received += len(part)
    print(8 * received / (time.monotonic() - start) / 1e6, flush=True)
"""
SEND_SCRIPT = """
import socket, sys
with socket.create_connection((sys.argv[1], 5001)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""
CONNECT_SCRIPT = "import socket, sys; socket.create_connection((sys.argv[1], 9), 2)"


def measure_megabits(sender, receiver, size):
    """Return the Mbit/s at which `size` bytes are sent from one host to another."""
    command = receiver.build_command(sys.executable, "-c", RECEIVE_SCRIPT, receiver.address)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline() == "ready\n"
    subprocess.run(sender.build_command(sys.executable, "-c", SEND_SCRIPT, receiver.address, str(size)), check=True)
    megabits = float(server.stdout.readline())
    server.wait(10)
    server.stdout.close()
    return megabits


def test_link_has_its_own_rate_and_does_not_slow_others():
    with create_lan(3, 100) as (first, second, third):
        assert measure_megabits(first, second, 10_000_000) == pytest.approx(96, rel=0.1)
        third.set_rate(2000)
        first.set_rate(2000)
        assert measure_megabits(first, third, 40_000_000) > 300


def test_pulled_cable_times_out_and_can_be_reconnected():
    with create_lan(2) as (first, second):
        command = first.build_command(sys.executable, "-c", CONNECT_SCRIPT, second.address)
        assert b"refused" in subprocess.run(command, capture_output=True).stderr
        second.set_link("down")
        assert b"timed out" in subprocess.run(command, capture_output=True).stderr
        second.set_link("up")
        assert b"refused" in subprocess.run(command, capture_output=True).stderr


def test_killed_host_has_no_processes_left():
    with create_lan(1) as (host,):
        process = subprocess.Popen(host.build_command("sleep", "100"))
        while not host.list_processes():
            time.sleep(0.01)
        host.kill()
        assert process.wait(5) == -9 and not host.list_processes()
    assert host.name not in run_checked("ip", "netns", "list")
