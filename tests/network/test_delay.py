"""Packets between simulated hosts travel for the delay that was set, at the rate of the links."""

import subprocess
import sys

import pytest

from tests.network.delayed_lan import create_delayed_lan, find_missing_tun
from tests.network.test_hosts import measure_megabits

pytestmark = pytest.mark.skipif(find_missing_tun() is not None, reason=str(find_missing_tun()))
CONNECT_SCRIPT = """
import socket, sys, time
times = []
for _ in range(5):
    start = time.monotonic()
    try:
        socket.create_connection((sys.argv[1], 9), 5)
    except ConnectionRefusedError:
        times.append(time.monotonic() - start)
print(min(times))
"""


@pytest.mark.parametrize("delay", [0.002, 0.02])
def test_refusal_comes_after_two_delays(delay):
    with create_delayed_lan(2, delay, 100) as (first, second):
        command = first.build_command(sys.executable, "-c", CONNECT_SCRIPT, second.address)
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 2 * delay <= float(result.stdout) < 2 * delay + 0.02


def test_links_have_their_rate():
    with create_delayed_lan(2, 0.001, 100) as (first, second):
        assert measure_megabits(first, second, 10_000_000) == pytest.approx(99, rel=0.1)
