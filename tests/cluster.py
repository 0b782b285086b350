"""One Ray for all tests that need one: real, two slots, in a folder of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
RAY = Path(sys.executable).with_name("ray")


@dataclass
class Cluster:
    """A running head node, and the commands a user would give it."""

    environment: dict[str, str]
    head: int
    """the head's process id"""
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: str, cwd: Path = ROOT, log: Path | None = None) -> subprocess.Popen[str]:
        """A command of a user's, under way, in a process group of its own; what it says goes into `log` if given."""
        said = log.open("w") if log else subprocess.PIPE
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=self.environment,
            stdout=said,
            stderr=subprocess.STDOUT if log else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if log:
            said.close()
        self.started.append(process)
        return process

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
    with running() as made:
        yield made


@contextmanager
def running(**variables: str) -> Iterator[Cluster]:
    """A head node with two slots, in a folder of its own, until the end of the block."""
    with TemporaryDirectory(prefix="eq-", dir="/tmp") as place:  # sockets' paths must be short
        gcs, dashboard, client, agent = free_ports(4)
        environment = os.environ | {
            "RAY_ADDRESS": f"127.0.0.1:{gcs}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
            "OMP_NUM_THREADS": "1",
        }
        ports = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
        ports += [f"--dashboard-agent-listen-port={agent}", "--min-worker-port=0", "--max-worker-port=0"]
        command = [RAY, "start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats", f"--temp-dir={place}"]
        with Path(place, "head.log").open("w") as log:
            head = subprocess.Popen(
                [*command, *ports], stdout=log, stderr=subprocess.STDOUT, env=os.environ | variables
            )
        made = Cluster(environment | variables, head.pid)
        try:
            until(lambda: head.poll() is not None or Path(place, "ray_current_cluster").exists())
            assert head.poll() is None, Path(place, "head.log").read_text()
            yield made
        finally:
            for process in (*made.started, head):
                end(process)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that a test started, and all that it started."""
    for pid in descendants(process.pid) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)


def descendants(root: int) -> dict[int, str]:
    """Ids of a process and of all below it, with their command lines."""
    parents, commands = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parents[int(place.name)] = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
                commands[int(place.name)] = (place / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it ended meanwhile
                continue
    below: set[int] = set()
    more = {root}
    while more:
        below |= more
        more = {pid for pid, parent in parents.items() if parent in below} - below
    return {pid: commands[pid] for pid in below if pid in commands}


def until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {seconds} s: {condition}")
        time.sleep(0.05)
    return found
