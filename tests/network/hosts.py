"""Hosts in miniature: network namespaces on a bridge, each by a link of its own rate, and what goes wrong with them.

A link is a pair of ends in the kernel; its rate is held on both by a token bucket, so that what is sent through it
takes the time that it would take on a real one. Needs root and iproute2.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

from jobs.cluster.processes import kill_processes, read_start_time

NUMBERS = count(os.getpid() % 200)  # of lans of this process, so that two do not share names or addresses


@dataclass(frozen=True)
class Host:
    """One of them."""

    name: str
    address: str

    def inside(self, *command: str) -> tuple[str, ...]:
        """A command, as it runs on this host."""
        return ("ip", "netns", "exec", self.name, *command)

    def link(self, state: str) -> None:
        """`down` for a cable that was pulled, `up` again."""
        told("ip", "link", "set", f"{self.name}-b", state)

    def rated(self, megabits: float) -> None:
        """The link's rate, both ways."""
        shape = ("root", "tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms")
        told("tc", "qdisc", "replace", "dev", f"{self.name}-b", *shape)
        told(*self.inside("tc", "qdisc", "replace", "dev", "eth0", *shape))

    def processes(self) -> list[int]:
        """Ids of all that run on it."""
        return [int(word) for word in told("ip", "netns", "pids", self.name).split()]

    def dies(self) -> None:
        """All its processes at once, as when the power goes."""
        self.link("down")  # nobody hears of it
        kill_processes({pid: read_start_time(pid) for pid in self.processes()})


def possible() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "hosts in network namespaces take root"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    return f"hosts in network namespaces take {' and '.join(missing)} (iproute2)" if missing else None


@contextmanager
def lan(hosts: int, megabits: float | None = None) -> Iterator[list[Host]]:
    """So many hosts on one bridge, until the end of the block; links without a rate are as fast as memory."""
    number = next(NUMBERS) % 250
    bridge, found = f"eq{number}", []
    with ExitStack() as stack:
        told("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(told, "ip", "link", "delete", bridge)
        told("ip", "link", "set", bridge, "up")
        for place in range(1, hosts + 1):
            host = Host(f"eq{number}h{place}", f"10.{number}.0.{place}")
            stack.enter_context(joined(host, bridge))
            if megabits:
                host.rated(megabits)
            found.append(host)
        yield found


@contextmanager
def joined(host: Host, bridge: str) -> Iterator[None]:
    """A namespace, linked to the bridge."""
    told("ip", "netns", "add", host.name)
    try:
        end = f"{host.name}-b"
        told("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        told("ip", "link", "set", end, "master", bridge, "up")
        for command in (("addr", "add", f"{host.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            told(*host.inside("ip", *command))
        told(*host.inside("ip", "link", "set", "lo", "up"))
        yield
    finally:
        kill_processes({pid: read_start_time(pid) for pid in host.processes()})
        told("ip", "netns", "delete", host.name)


def told(*command: str) -> str:
    """A command that must go well; what it says."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
