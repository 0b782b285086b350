"""Private Ray head node for the length of a block, with the commands that run on it; no process outlives the block.

Every command leads a process group, and whatever ends the block (Ctrl-C, SIGTERM, an error) ends all groups. If this
process is killed, the kernel still sends SIGTERM to each child when its parent is gone.
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

from equipoise.errors import CommandFailed
from jobs import LOOPBACK_ENV
from jobs.cluster.processes import (
    find_free_ports,
    find_process_tree,
    find_raylets,
    kill_processes,
    terminate_process_groups,
    wait_until,
)

ENVIRONMENT_BIN = Path(sys.executable).parent
RAY_TEMP_ROOT, RAY_TEMP_PREFIX = Path("/tmp"), "eq-"  # noqa: S108 - short, because Ray's socket paths lie below it
PR_SET_PDEATHSIG = 1


@dataclass
class PrivateRay:
    """Running head node, and the commands that were started on it."""

    environment: dict[str, str]
    head_pid: int
    """process id of the head"""
    processes: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start_command(self, *command: str, log: Path | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command on this Ray; its output goes to `log` if given, else to pipes."""
        process = spawn_process(command, self.environment, log, cwd)
        self.processes.append(process)
        return process


def spawn_process(
    command: tuple[str, ...], environment: dict[str, str], log: Path | None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start a process that leads its own process group and does not outlive this process."""
    output = log.open("w") if log else subprocess.PIPE
    try:
        with block_signals() as signal_mask:  # an exception that a signal raises during a fork is lost
            return subprocess.Popen(  # noqa: S603 - the callers choose the commands
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, signal_mask),
            )
    finally:
        if log:
            output.close()  # type: ignore[union-attr] # a file here


@contextmanager
def start_private_ray(
    slots: int, *ray_start_arguments: str, gcs_port: int = 0, dashboard_port: int = 0, **variables: str
) -> Iterator[PrivateRay]:
    """Start a head node in its own folder, with these variables in its environment and in that of its commands.

    Ports are on loopback, and free ones unless given; `ray_start_arguments` are appended to `ray start`.
    """
    with TemporaryDirectory(prefix=RAY_TEMP_PREFIX, dir=RAY_TEMP_ROOT, ignore_cleanup_errors=True) as folder:
        ports = find_free_ports(4)
        gcs_port, dashboard_port, client, agent = gcs_port or ports[0], dashboard_port or ports[1], *ports[2:]
        environment, log = os.environ | LOOPBACK_ENV | variables, Path(folder, "head.log")
        command = (
            # the program `ray` belongs to the environment that Ray was installed in, which may lie below this one
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
            "--node-ip-address=127.0.0.1",
            *(f"--num-cpus={slots}", f"--temp-dir={folder}"),
            *(f"--port={gcs_port}", f"--dashboard-port={dashboard_port}"),
            *(f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}"),
            *("--min-worker-port=0", "--max-worker-port=0", *ray_start_arguments),
        )
        head = spawn_process(command, environment, log)
        addresses = {
            "RAY_ADDRESS": f"127.0.0.1:{gcs_port}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard_port}",
        }
        private_ray = PrivateRay(environment | addresses, head.pid)
        try:
            address_file = Path(folder, "ray_current_cluster")
            wait_until(lambda: head.poll() is not None or address_file.exists(), 120, "Ray's start")
            if head.poll() is not None:
                raise CommandFailed(f"cannot start Ray: {log.read_text()[-2000:]}")
            yield private_ray
        finally:
            with block_signals():
                terminate_process_groups(private_ray.processes)
                # once the head is gone, its nodes may be left without a parent
                while left := find_process_tree(head.pid) if head.poll() is None else find_raylets(folder):
                    kill_processes(left)
                    head.poll()


def die_with_parent(signal_mask: set[int]) -> None:
    """Restore the signal mask in a child process, and have the kernel end it when its parent is gone."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def block_signals() -> Iterator[set[int]]:
    """Hold back SIGINT, SIGTERM and SIGHUP until the end of the block; yield the signals blocked before it."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield {int(number) for number in previous_mask}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
