"""Real Ray cluster with two slots in its own folder, shared by all tests that need one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from jobs.cluster.private_ray import PrivateRay, start_private_ray
from jobs.cluster.processes import find_process_tree

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 600  # for each wait: a few seconds of training may take minutes on a machine with other work


@dataclass
class Cluster(PrivateRay):
    """A running head node, on which tests start commands and deploy services."""

    def start(self, *command: str, log: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command in `cwd`, by default the root of the project."""
        return super().start_command(*command, log=log, cwd=cwd or ROOT)

    def run(
        self, *arguments: str, timeout: float = PATIENCE_SECONDS, cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and return its exit status and output."""
        process = self.start(*arguments, cwd=cwd)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def build_train_command(self, *arguments: Any) -> list[str]:
        """Return the command line of a training run of digits."""
        return [sys.executable, "-m", "jobs.train", "--workload", "digits", *map(str, arguments)]

    def deploy(self, config: dict[str, Any]) -> None:
        """Deploy a configuration of Serve, as `serve deploy` does with a file."""
        self._send_to_serve("PUT", json.dumps(config).encode())

    def shut_down_serve(self) -> None:
        """Shut down Serve, as `serve shutdown` does: its replicas hold slots that other tests need."""
        self._send_to_serve("DELETE")

    def _send_to_serve(self, method: str, body: bytes | None = None) -> None:
        address = urlsplit(self.environment["RAY_API_SERVER_ADDRESS"])
        connection = HTTPConnection(str(address.hostname), address.port, timeout=PATIENCE_SECONDS)
        connection.request(method, "/api/serve/applications/", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        connection.close()


@pytest.fixture(scope="session")
def cluster():
    with start_cluster() as cluster:
        yield cluster


@contextmanager
def start_cluster(slot_count: int = 2, **variables: str) -> Iterator[Cluster]:
    """Start a head node with slots for the length of the block; `variables` are added to its environment."""
    with start_private_ray(slot_count, **variables) as ray:
        yield Cluster(ray.environment | {"OMP_NUM_THREADS": "1"} | variables, ray.head_pid, ray.processes)


def list_descendants(root: int) -> dict[int, str]:
    """Return the command lines of a process and of all its descendants, by process id."""
    commands = {}
    for pid in (process.pid for process in find_process_tree(root)):
        with suppress(OSError):  # the process has ended in the meantime
            commands[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return commands
