"""Find, terminate and kill the processes that a command has started, so that none is left running."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

TERMINATE_SECONDS = 5.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 10.0  # for a killed process to disappear


def terminate_process_groups(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """End commands that lead process groups and all their descendants: SIGTERM first, SIGKILL after 5 s."""
    running = [process for process in processes if process.poll() is None]
    start_times = {pid: read_start_time(pid) for process in running for pid in find_process_tree(process.pid)}
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        wait_until(lambda: all(process.poll() is not None for process in running), TERMINATE_SECONDS)
    kill_processes(start_times)
    for process in processes:
        process.wait(KILL_SECONDS)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def kill_processes(start_times: Mapping[int, str]) -> None:
    """Kill processes and wait until they are gone; an id with another start time is a different process by now."""
    for pid, start_time in start_times.items():
        if read_start_time(pid) == start_time:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a folder that they still write to could not be removed
        wait_until(lambda: not any(read_start_time(pid) == start for pid, start in start_times.items()), KILL_SECONDS)


def find_process_tree(root: int) -> set[int]:
    """Return the ids of a process and of all its descendants."""
    return {root} | find_descendants(root)


def find_raylets(ray_folder: str) -> set[int]:
    """Return the process ids of the nodes of the Ray that runs in a folder, whoever their parent is by now."""
    return {int(process.name) for process in Path("/proc").glob("[0-9]*") if is_raylet(process, ray_folder)}


def is_raylet(process: Path, ray_folder: str = "") -> bool:
    """Return whether a process, given as its folder in /proc, is a raylet of the Ray that runs in a folder."""
    with suppress(OSError):  # it has ended meanwhile, or belongs to another user
        return (
            process.joinpath("exe").readlink().name == "raylet"
            and ray_folder in process.joinpath("cmdline").read_text()
        )
    return False


def find_descendants(root: int) -> set[int]:
    """Return the ids of all descendants of a process."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    parents = {pid: read_parent_pid(pid) for pid in pids}
    tree, generation = set[int](), {root}
    while generation:
        tree |= generation
        generation = {pid for pid, parent in parents.items() if parent in tree} - tree
    return tree - {root}


def read_parent_pid(pid: int) -> int:
    """Return the id of a process's parent; 0 if the process is gone."""
    return int((read_stat_fields(pid) or ["", "0"])[1])


def read_start_time(pid: int) -> str:
    """Return when a process was started, in clock ticks since boot; an empty string if it has ended."""
    fields = read_stat_fields(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def read_stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the process's name; an empty list if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def find_free_ports(count: int) -> list[int]:
    """Return ports on loopback that no program listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def wait_until(condition: Callable[[], Any], seconds: float = 120, description: str = "") -> Any:
    """Return the value of `condition` once it is true; raise TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{description or condition} took longer than {seconds:.0f} s")
        time.sleep(0.05)
    return result
