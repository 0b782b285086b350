"""A Ray over hosts in miniature: a head and nodes, each in its own network namespace."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs.processes import ended, until
from jobs.stage import BIN, begun
from tests.cluster import ROOT
from tests.lan.hosts import Host

PORT, DASHBOARD = 6379, 8265


@dataclass
class Spread:
    """The head on the first host, a node on each other."""

    hosts: list[Host]
    place: Path
    slots: int = 1
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Of whoever works on it: gloo has to be told by which way to go."""
        address = f"{self.hosts[0].address}:{PORT}"
        return os.environ | {"RAY_ADDRESS": address, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}

    def start(self, host: Host, *command: str, log: str | None = None) -> subprocess.Popen[str]:
        """A command on a host."""
        process = begun(host.inside(*command), self.environment, self.place / f"{log}.log" if log else None, ROOT)
        self.started.append(process)
        return process

    def run(self, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """A command on the head's host, to its end."""
        process = self.start(self.hosts[0], *command)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def node(self, host: Host, *more: str) -> None:
        """Ray on a host; the first is the head."""
        way = ["--head", f"--port={PORT}"] if host == self.hosts[0] else [f"--address={self.hosts[0].address}:{PORT}"]
        place = self.place / host.name
        place.mkdir(exist_ok=True)
        ray = [str(BIN / "ray"), "start", "--block", "--disable-usage-stats", f"--node-ip-address={host.address}"]
        folder = [f"--temp-dir={place}"] if host == self.hosts[0] else []
        self.start(host, *ray, *way, *folder, f"--num-cpus={self.slots}", *more, log=host.name)

    def alive(self) -> int:
        """Nodes that the head knows of."""
        asked = "import ray; ray.init(logging_level='ERROR'); print(sum(one['Alive'] for one in ray.nodes()))"
        said = self.run(str(BIN / "python"), "-c", asked)
        return int(said.stdout.split()[-1]) if said.returncode == 0 else 0


@contextmanager
def spread(hosts: list[Host], slots: int = 1) -> Iterator[Spread]:
    """Until the end of the block."""
    with TemporaryDirectory(prefix="eq-", dir="/tmp", ignore_cleanup_errors=True) as name:
        made = Spread(hosts, Path(name), slots)
        try:
            for host in hosts:
                made.node(host)
                if host == hosts[0]:
                    until((made.place / host.name / "ray_current_cluster").exists, 120, "the head's start")
            until(lambda: made.alive() == len(hosts), 120, "all nodes")
            yield made
        finally:
            ended(made.started)
