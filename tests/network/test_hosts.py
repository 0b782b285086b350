"""The harness itself: hosts reach each other, at the rate that was set, until a cable is pulled."""

import subprocess
import sys
import time

import pytest

from tests.network.hosts import lan, possible, told

pytestmark = pytest.mark.skipif(possible() is not None, reason=str(possible()))
TAKE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 5001)) as server:
    print("ready", flush=True)
    asked, _ = server.accept()
    begun, whole = time.monotonic(), 0
    while part := asked.recv(1 << 20):
        whole += len(part)
    print(8 * whole / (time.monotonic() - begun) / 1e6, flush=True)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 5001)) as one:
    one.sendall(bytes(int(sys.argv[2])))
"""


KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], 9), 2)"


def rate(one, other, size):
    """Megabits a second from one host to another."""
    taker = subprocess.Popen(other.inside(sys.executable, "-c", TAKE, other.address), stdout=subprocess.PIPE, text=True)
    assert taker.stdout.readline() == "ready\n"
    subprocess.run(one.inside(sys.executable, "-c", SEND, other.address, str(size)), check=True)
    found = float(taker.stdout.readline())
    taker.wait(10)
    taker.stdout.close()
    return found


def test_a_link_has_the_rate_that_was_set_and_no_other_is_slowed():
    with lan(3, 100) as (one, other, third):
        assert rate(one, other, 10_000_000) == pytest.approx(96, rel=0.1)
        third.rated(2000)
        one.rated(2000)
        assert rate(one, third, 40_000_000) > 300


def test_a_pulled_cable_is_silence_and_can_be_put_back():
    with lan(2) as (one, other):
        reached = one.inside(sys.executable, "-c", KNOCK, other.address)
        assert b"refused" in subprocess.run(reached, capture_output=True).stderr
        other.link("down")
        assert b"timed out" in subprocess.run(reached, capture_output=True).stderr
        other.link("up")
        assert b"refused" in subprocess.run(reached, capture_output=True).stderr


def test_a_host_that_dies_takes_its_processes_with_it():
    with lan(1) as (host,):
        running = subprocess.Popen(host.inside("sleep", "100"))
        while not host.processes():
            time.sleep(0.01)
        host.dies()
        assert running.wait(5) == -9 and not host.processes()
    assert host.name not in told("ip", "netns", "list")
