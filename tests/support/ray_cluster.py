"""One Ray for all tests that need one: real, two slots, in a folder of its own."""

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


@dataclass
class Cluster(PrivateRay):
    """A running head node, and what tests do with it."""

    def start(self, *command: str, log: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
        """In the project's folder if not told otherwise."""
        return super().start_command(*command, log=log, cwd=cwd or ROOT)

    def run(self, *arguments: str, timeout: float = 180, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """A command of a user's, to its end."""
        process = self.start(*arguments, cwd=cwd)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def train(self, *arguments: Any) -> list[str]:
        """The words of a training command."""
        return [sys.executable, "-m", "jobs.train", "--workload", "digits", *map(str, arguments)]

    def deploy(self, config: dict[str, Any]) -> None:
        """What `serve deploy` does with a file of that content."""
        self._serve("PUT", json.dumps(config).encode())

    def shut_down_serve(self) -> None:
        """End all that Serve runs, as `serve shutdown` does: it holds slots that other tests need."""
        self._serve("DELETE")

    def _serve(self, method: str, body: bytes | None = None) -> None:
        address = urlsplit(self.environment["RAY_API_SERVER_ADDRESS"])
        connection = HTTPConnection(str(address.hostname), address.port, timeout=60)
        connection.request(method, "/api/serve/applications/", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        connection.close()


@pytest.fixture(scope="session")
def cluster():
    with start_cluster() as made:
        yield made


@contextmanager
def start_cluster(**variables: str) -> Iterator[Cluster]:
    """A head node with two slots, until the end of the block."""
    with start_private_ray(2, **variables) as made:
        yield Cluster(made.environment | {"OMP_NUM_THREADS": "1"} | variables, made.head_pid, made.processes)


def list_descendants(root: int) -> dict[int, str]:
    """Ids of a process and of all below it, with their command lines."""
    found = {}
    for pid in find_process_tree(root):
        with suppress(OSError):  # it ended meanwhile
            found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return found
