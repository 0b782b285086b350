"""Servers that are measured in turns: each runs in processes of its own and is paused while another is measured."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from jobs.cluster.processes import terminate_process_groups, wait_until
from tests.support.ray_cluster import ROOT, Cluster


class Server(NamedTuple):
    """A running server: its port, the request to send, and its processes."""

    port: int
    message: bytes
    roots: list[int]
    group: int | None = None
    """process group that is paused while other servers are measured: one of the peers is never idle"""


def deploy_application(cluster: Cluster, application: dict[str, object]) -> None:
    """Deploy an application whose replicas listen on their own ports."""
    cluster.deploy({"proxy_location": "Disabled", "applications": [application]})


@contextmanager
def run_server_process(command: list[str], variables: dict[str, str], port: int, message: bytes) -> Iterator[Server]:
    """Run a server process until it answers, and pause it until it is measured."""
    environment = os.environ | variables | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(command[0]).parent}:{environment['PATH']}"
    with TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            wait_until(lambda: process.poll() is not None or is_answering(port, message), 120)
            if process.poll() is not None:
                sys.exit(f"cannot start {' '.join(command)}: it ended with\n{Path(folder, 'log').read_text()}")
            os.killpg(process.pid, signal.SIGSTOP)
            yield Server(port, message, [process.pid], process.pid)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            terminate_process_groups([process])


def is_answering(port: int, message: bytes) -> bool:
    """Return whether a request is answered with status 200."""
    head, _, body = message.partition(b"\r\n\r\n")
    path = head.split(b" ")[1].decode()
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def signal_server(server: Server, signal_number: signal.Signals) -> None:
    """Pause the processes of a server, or let them continue."""
    if server.group is not None:
        os.killpg(server.group, signal_number)
