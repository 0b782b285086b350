"""A Ray of one's own for the length of a block, and the commands that are run on it; nothing of it stays.

Every command leads a process group, and whatever ends the block ends them all: Ctrl-C, SIGTERM, an error. The last
resort is the kernel's: a child is told to end when its parent is gone.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jobs import LOOPBACK_ENV
from jobs.cluster.processes import (
    find_free_ports,
    find_process_tree,
    find_raylets,
    kill_processes,
    read_start_time,
    terminate_process_groups,
    wait_until,
)

ENVIRONMENT_BIN = Path(sys.executable).parent
RAY_TEMP_ROOT, RAY_TEMP_PREFIX = Path("/tmp"), "eq-"  # noqa: S108 - of Ray's folder: paths of its sockets must be short
PR_SET_PDEATHSIG = 1


@dataclass
class PrivateRay:
    """A running head node, and the commands a user would give it."""

    environment: dict[str, str]
    head_pid: int
    """the head's process id"""
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start_command(self, *command: str, log: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
        """A command, under way; what it says goes into `log` if given."""
        process = spawn_process(command, self.environment, log, cwd)
        self.processes.append(process)
        return process


def spawn_process(
    command: tuple[str, ...], environment: dict[str, str], log: Path | None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """A process that leads a group of its own and does not outlive this one."""
    said = log.open("w") if log else subprocess.PIPE
    try:
        with block_signals() as before:  # what a signal raises in the midst of a fork is lost
            return subprocess.Popen(  # noqa: S603 - the commands of whoever asks
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, before),
            )
    finally:
        if log:
            said.close()  # type: ignore[union-attr] # a file then


@contextmanager
def start_private_ray(
    slots: int, *ray_start_arguments: str, gcs_port: int = 0, dashboard_port: int = 0, **variables: str
) -> Iterator[PrivateRay]:
    """A head node in a folder of its own, with these variables in its environment and in its commands'.

    Ports are free ones unless given, and all of them are loopback's; `more` are further words for `ray start`.
    """
    with TemporaryDirectory(prefix=RAY_TEMP_PREFIX, dir=RAY_TEMP_ROOT, ignore_cleanup_errors=True) as place:
        ports = find_free_ports(4)
        gcs_port, dashboard_port, client, agent = gcs_port or ports[0], dashboard_port or ports[1], *ports[2:]
        environment, log = os.environ | LOOPBACK_ENV | variables, Path(place, "head.log")
        command = (
            *(str(ENVIRONMENT_BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats"),
            "--node-ip-address=127.0.0.1",
            *(f"--num-cpus={slots}", f"--temp-dir={place}", f"--port={gcs_port}", f"--dashboard-port={dashboard_port}"),
            *(f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}"),
            *("--min-worker-port=0", "--max-worker-port=0", *ray_start_arguments),
        )
        head = spawn_process(command, environment, log)
        addresses = {
            "RAY_ADDRESS": f"127.0.0.1:{gcs_port}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port}",
        }
        made = PrivateRay(environment | addresses, head.pid)
        try:
            wait_until(
                lambda: head.poll() is not None or Path(place, "ray_current_cluster").exists(), 120, "Ray's start"
            )
            if head.poll() is not None:
                raise RuntimeError(f"Ray does not start: {log.read_text()[-2000:]}")
            yield made
        finally:
            with block_signals():
                terminate_process_groups(made.processes)
                while below := (
                    find_process_tree(head.pid) if head.poll() is None else find_raylets(place)
                ):  # then nodes it lost
                    kill_processes({pid: read_start_time(pid) for pid in below})
                    head.poll()


def die_with_parent(signal_mask: set[int]) -> None:
    """Of a child: hear signals, and end when the parent is gone, however that went."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def block_signals() -> Iterator[set[int]]:
    """Who wants us to stop is heard afterwards; gives what was not heard before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield {int(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
