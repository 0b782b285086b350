"""Ray cluster on simulated hosts: a head that runs no work, and nodes, each in its own network namespace."""

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
MAX_START_ATTEMPTS = 3  # Ray gives a node 30 s to start its processes, which a busy machine may exceed


@dataclass
class SpreadCluster:
    """A head on the first host and a node on each of the others."""

    hosts: list[Host]
    folder: Path
    environment: dict[str, str]
    """environment of every command on the cluster"""
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, *command: str, host: Host | None = None, log: Path | None = None) -> subprocess.Popen[str]:
        """Start a command on a host, by default on that of the head."""
        process = spawn_process((host or self.hosts[0]).build_command(*command), self.environment, log, ROOT)
        self.processes.append(process)
        return process

    def run(self, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command to its end on the host of the head."""
        process = self.start(*command)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def start_nodes(self, *hosts: Host) -> None:
        """Start Ray on these hosts, two at a time; on the first host of the cluster as the head."""
        for pair in (hosts[i : i + 2] for i in range(0, len(hosts), 2)):
            processes = {host: self.start_node(host) for host in pair}
            for host in pair:
                for _ in range(MAX_START_ATTEMPTS):
                    if self.has_started(host, processes[host]):
                        break
                    processes[host] = self.start_node(host)
                else:
                    raise RuntimeError(f"Ray does not start on {host.name}: {self.log_path(host).read_text()[-2000:]}")

    def start_node(self, host: Host) -> subprocess.Popen[str]:
        """Start Ray on a host."""
        head = self.hosts[0]
        temp_dir = f"--temp-dir={self.folder}"
        flags = ["--head", f"--port={PORT}", "--include-dashboard=false", temp_dir, "--num-cpus=0"]
        if host != head:
            flags = [f"--address={head.address}:{PORT}", "--num-cpus=1", "--object-store-memory=100000000"]
        command = [
            str(ENVIRONMENT_BIN / "ray"),
            "start",
            "--block",
            "--disable-usage-stats",
            f"--node-ip-address={host.address}",
        ]
        return self.start(*command, *flags, host=host, log=self.log_path(host))

    def log_path(self, host: Host) -> Path:
        """Return the path of the log of Ray on a host."""
        return self.folder / f"{host.name}.log"

    def has_started(self, host: Host, process: subprocess.Popen[str]) -> bool:
        """Wait until Ray runs on the host or has given up, and return whether it runs."""
        wait_until(
            lambda: process.poll() is not None or "Ray runtime started" in self.log_path(host).read_text(),
            120,
            host.name,
        )
        return process.poll() is None


@contextmanager
def start_spread_cluster(hosts: list[Host], idle_hosts: int = 0, **variables: str) -> Iterator[SpreadCluster]:
    """Start Ray for the length of the block on all hosts but the last `idle_hosts`, on which a test starts it later."""
    with TemporaryDirectory(prefix="eq-", dir="/tmp", ignore_cleanup_errors=True) as name:
        # gloo does not find the right network interface by itself
        settings = {"RAY_ADDRESS": f"{hosts[0].address}:{PORT}", "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        cluster = SpreadCluster(hosts, Path(name), os.environ | settings | variables)
        try:
            cluster.start_nodes(*hosts[: len(hosts) - idle_hosts])
            yield cluster
        finally:
            terminate_process_groups(cluster.processes)
