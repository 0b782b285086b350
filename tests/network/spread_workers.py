"""A Ray over hosts in miniature: a head that runs no work, and nodes, each in its own network namespace."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.cluster.private_ray import ENVIRONMENT_BIN, spawn_process
from jobs.cluster.processes import terminate_process_groups, wait_until
from tests.network.hosts import Host
from tests.support.ray_cluster import ROOT

PORT = 6379
TRIES = 3  # Ray gives a node that starts 30 s for its processes, which a busy machine may not keep


@dataclass
class Spread:
    """The head on the first host, a node on each other."""

    hosts: list[Host]
    place: Path
    environment: dict[str, str]
    """of whoever works on it"""
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, *command: str, host: Host | None = None, log: Path | None = None) -> subprocess.Popen[str]:
        """A command on a host, the head's if not told otherwise."""
        process = spawn_process((host or self.hosts[0]).inside(*command), self.environment, log, ROOT)
        self.started.append(process)
        return process

    def run(self, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """A command on the head's host, to its end."""
        process = self.start(*command)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def nodes(self, *hosts: Host) -> None:
        """Ray on these hosts, two at a time; the first of all is the head."""
        for pair in (hosts[i : i + 2] for i in range(0, len(hosts), 2)):
            running = {host: self.node(host) for host in pair}
            for host in pair:
                for _ in range(TRIES):
                    if self.joined(host, running[host]):
                        break
                    running[host] = self.node(host)
                else:
                    raise RuntimeError(f"Ray does not start on {host.name}: {self.log(host).read_text()[-2000:]}")

    def node(self, host: Host) -> subprocess.Popen[str]:
        """Ray on a host."""
        head = self.hosts[0]
        temporary = f"--temp-dir={self.place}"
        way = ["--head", f"--port={PORT}", "--include-dashboard=false", temporary, "--num-cpus=0"]
        if host != head:
            way = [f"--address={head.address}:{PORT}", "--num-cpus=1", "--object-store-memory=100000000"]
        ray = [
            str(ENVIRONMENT_BIN / "ray"),
            "start",
            "--block",
            "--disable-usage-stats",
            f"--node-ip-address={host.address}",
        ]
        return self.start(*ray, *way, host=host, log=self.log(host))

    def log(self, host: Host) -> Path:
        """What Ray says on a host."""
        return self.place / f"{host.name}.log"

    def joined(self, host: Host, process: subprocess.Popen[str]) -> bool:
        """Whether Ray came up there."""
        wait_until(
            lambda: process.poll() is not None or "Ray runtime started" in self.log(host).read_text(), 120, host.name
        )
        return process.poll() is None


@contextmanager
def spread(hosts: list[Host], later: int = 0, **variables: str) -> Iterator[Spread]:
    """Until the end of the block; so many of the last hosts are left for later."""
    with TemporaryDirectory(prefix="eq-", dir="/tmp", ignore_cleanup_errors=True) as name:
        # gloo has to be told by which way to go
        known = {"RAY_ADDRESS": f"{hosts[0].address}:{PORT}", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        made = Spread(hosts, Path(name), os.environ | known | variables)
        try:
            made.nodes(*hosts[: len(hosts) - later])
            yield made
        finally:
            terminate_process_groups(made.started)
