"""Simulated hosts whose links have a delay and a rate, where the kernel has no queue that delays packets."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.network.hosts import (
    LAN_NUMBERS,
    Host,
    find_missing_requirement,
    remove_host,
    run_checked,
    set_congestion_control,
)
from tests.support.ray_cluster import ROOT

MTU = 9000  # large packets, so that one process can carry all of them
MAX_QUEUED_PACKETS = 20_000  # to that process; a real device tells TCP how much waits, and so none is lost


def find_missing_tun() -> str | None:
    """Return why hosts with delay cannot be created on this machine, or None if they can."""
    return find_missing_requirement() or (
        None if Path("/dev/net/tun").exists() else "links with a delay need /dev/net/tun"
    )


@contextmanager
def create_delayed_lan(host_count: int, delay_seconds: float, megabits: float) -> Iterator[list[Host]]:
    """Create hosts for the length of the block whose packets travel for `delay_seconds`, at `megabits` per second."""
    number = next(LAN_NUMBERS) % 250
    hosts = [Host(f"eq{number}h{index}", f"10.{number}.0.{index}") for index in range(1, host_count + 1)]
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(create_namespace(host))
        stack.enter_context(run_forwarder(hosts, delay_seconds, megabits))
        for host in hosts:
            run_checked(*host.build_command("ip", "addr", "add", f"{host.address}/24", "dev", "eth0"))
            device = ("mtu", str(MTU), "txqueuelen", str(MAX_QUEUED_PACKETS), "up")
            run_checked(*host.build_command("ip", "link", "set", "eth0", *device))
        yield hosts


@contextmanager
def create_namespace(host: Host) -> Iterator[None]:
    """Create the namespace of a host with a loopback alone, for the length of the block."""
    run_checked("ip", "netns", "add", host.name)
    try:
        run_checked(*host.build_command("ip", "link", "set", "lo", "up"))
        set_congestion_control(host)
        yield
    finally:
        remove_host(host)


@contextmanager
def run_forwarder(hosts: list[Host], delay_seconds: float, megabits: float) -> Iterator[None]:
    """Run the process that carries packets between hosts, for the length of the block."""
    names = [f"{host.name}={host.address}" for host in hosts]
    command = [sys.executable, "-m", "tests.network.packet_forwarder", str(delay_seconds), str(megabits), *names]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise RuntimeError("the process that carries packets has ended")
            yield
        finally:
            process.kill()
