"""Simulated hosts: network namespaces on a bridge, each with a link of its own rate, and faults of links and hosts.

A link is a pair of virtual Ethernet devices; a token bucket limits the rate of both, so that a transfer takes as long
as on a real link of that rate. Needs root and iproute2.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count

import psutil

from jobs.cluster.processes import kill_processes
from tests.network.cpu_groups import build_entering_command, move_to_group, remove_cpu_group, set_cpu_quota

LAN_NUMBERS = count(os.getpid() % 200)  # numbers of this process's LANs, so that two share no names or addresses


@dataclass(frozen=True)
class Host:
    """A network namespace with an address on the bridge."""

    name: str
    address: str

    def build_command(self, *command: str) -> tuple[str, ...]:
        """Return the command line that runs a command on this host."""
        return (*build_entering_command(self.name), "ip", "netns", "exec", self.name, *command)

    def set_link(self, state: str) -> None:
        """Set the link `down`, as if its cable were pulled, or `up` again."""
        run_checked("ip", "link", "set", f"{self.name}-b", state)

    def set_rate(self, megabits: float, burst_kilobytes: int = 256) -> None:
        """Limit the rate of the link in both directions, in Mbit/s; after a pause a burst is not limited."""
        token_bucket = ("root", "tbf", "rate", f"{megabits}mbit", "burst", f"{burst_kilobytes}kb", "latency", "50ms")
        run_checked("tc", "qdisc", "replace", "dev", f"{self.name}-b", *token_bucket)
        run_checked(*self.build_command("tc", "qdisc", "replace", "dev", "eth0", *token_bucket))

    def limit_cpu(self, cores: float) -> None:
        """Give all processes of this host together so many cores, such as 0.2, also those that it starts later."""
        set_cpu_quota(self.name, cores)
        move_to_group(self.name, self.list_processes)

    def list_processes(self) -> list[psutil.Process]:
        """Return the processes on this host."""
        processes = []
        for pid in run_checked("ip", "netns", "pids", self.name).split():
            with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
                processes.append(psutil.Process(int(pid)))
        return processes

    def kill(self) -> None:
        """Kill all processes of this host at once, as a power failure does."""
        self.set_link("down")  # so that no other host is notified
        kill_processes(self.list_processes())


def find_missing_requirement() -> str | None:
    """Return why hosts cannot be created on this machine, or None if they can."""
    if os.geteuid() != 0:
        return "hosts in network namespaces need root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    return f"hosts in network namespaces need {' and '.join(missing)} (iproute2)" if missing else None


@contextmanager
def create_lan(host_count: int, megabits: float | None = None) -> Iterator[list[Host]]:
    """Create hosts on one bridge for the length of the block; links without a rate are as fast as memory."""
    number = next(LAN_NUMBERS) % 250
    bridge, hosts = f"eq{number}", []
    with ExitStack() as stack:
        run_checked("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(run_checked, "ip", "link", "delete", bridge)
        run_checked("ip", "link", "set", bridge, "up")
        for index in range(1, host_count + 1):
            host = Host(f"eq{number}h{index}", f"10.{number}.0.{index}")
            stack.enter_context(attach_host(host, bridge))
            if megabits:
                host.set_rate(megabits)
            hosts.append(host)
        yield hosts


@contextmanager
def attach_host(host: Host, bridge: str) -> Iterator[None]:
    """Create the namespace of a host and its link to the bridge, for the length of the block."""
    run_checked("ip", "netns", "add", host.name)
    try:
        device = f"{host.name}-b"
        run_checked("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        run_checked("ip", "link", "set", device, "master", bridge, "up")
        for command in (("addr", "add", f"{host.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            run_checked(*host.build_command("ip", *command))
        run_checked(*host.build_command("ip", "link", "set", "lo", "up"))
        set_congestion_control(host)
        yield
    finally:
        remove_host(host)


def set_congestion_control(host: Host) -> None:
    """Let connections of a host find their rate by losses: bbr, which this machine may use, takes seconds for it."""
    run_checked(*host.build_command("sysctl", "--quiet", "--write", "net.ipv4.tcp_congestion_control=reno"))


def remove_host(host: Host) -> None:
    """Kill the processes of a host and remove its namespace and its CPU quota."""
    kill_processes(host.list_processes())
    run_checked("ip", "netns", "delete", host.name)
    remove_cpu_group(host.name)


def run_checked(*command: str) -> str:
    """Run a command and return its output; raise RuntimeError if it fails."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout
