"""Processes that one started and shall leave nothing of: found, asked to end, and ended."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

TERMINATE_SECONDS = 5.0  # for processes to end by themselves
KILL_SECONDS = 10.0  # for the kernel to end them


def terminate_process_groups(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Commands that lead groups, and all that they started: asked first."""
    running = [one for one in processes if one.poll() is None]
    below = {pid: read_start_time(pid) for one in running for pid in find_process_tree(one.pid)}
    for one in running:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        wait_until(lambda: all(one.poll() is not None for one in running), TERMINATE_SECONDS)
    kill_processes(below)
    for one in processes:
        one.wait(KILL_SECONDS)
        for pipe in (one.stdout, one.stderr):
            if pipe:
                pipe.close()


def kill_processes(start_times: Mapping[int, str]) -> None:
    """Processes by when they were born, for an id may be another's by and by; they are gone afterwards."""
    for pid, birth in start_times.items():
        if read_start_time(pid) == birth:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a folder that they still write to could not be removed
        wait_until(lambda: not any(read_start_time(pid) == birth for pid, birth in start_times.items()), KILL_SECONDS)


def find_process_tree(root: int) -> set[int]:
    """Ids of a process and of all below it."""
    return {root} | find_descendants(root)


def find_raylets(ray_folder: str) -> set[int]:
    """Ids of the nodes of a Ray whose folder this is, whoever their parent is by now."""
    return {int(one.name) for one in Path("/proc").glob("[0-9]*") if is_raylet(one, ray_folder)}


def is_raylet(process: Path, ray_folder: str = "") -> bool:
    """Whether a process is what keeps a node of Ray's."""
    with suppress(OSError):  # it ended meanwhile, or is another's
        return (
            process.joinpath("exe").readlink().name == "raylet"
            and ray_folder in process.joinpath("cmdline").read_text()
        )
    return False


def find_descendants(root: int) -> set[int]:
    """Ids of all processes below one."""
    parents = {
        int(place.name): read_parent_pid(int(place.name)) for place in Path("/proc").iterdir() if place.name.isdigit()
    }
    below, more = set[int](), {root}
    while more:
        below |= more
        more = {pid for pid, above in parents.items() if above in below} - below
    return below - {root}


def read_parent_pid(pid: int) -> int:
    """Of a process; 0 if it is gone."""
    return int((read_stat_fields(pid) or ["", "0"])[1])


def read_start_time(pid: int) -> str:
    """When a process was started, in the kernel's ticks; empty if it has ended."""
    found = read_stat_fields(pid)
    return found[19] if found and found[0] != "Z" else ""


def read_stat_fields(pid: int) -> list[str]:
    """What the kernel says of a process, after its name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def find_free_ports(count: int) -> list[int]:
    """Ports that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def wait_until(condition: Callable[[], Any], seconds: float = 120, description: str = "") -> Any:
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{description or condition} took longer than {seconds:.0f} s")
        time.sleep(0.05)
    return found
