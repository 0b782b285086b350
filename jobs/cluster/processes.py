"""Find, terminate and kill the processes that a command has started, so that none is left running."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

TERMINATE_SECONDS = 5.0  # between SIGTERM and SIGKILL
KILL_SECONDS = 10.0  # for a killed process to disappear
MIN_FREE_PORT = 20_000  # Ray gives its workers the ports from 10002 to 19999
DEFAULT_EPHEMERAL_PORT = 32_768  # of Linux


def terminate_process_groups(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """End commands that lead process groups and all their descendants: SIGTERM first, SIGKILL after 5 s."""
    running = [process for process in processes if process.poll() is None]
    trees = [find_process_tree(process.pid) for process in running]
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    with suppress(TimeoutError):
        wait_until(lambda: all(process.poll() is not None for process in running), TERMINATE_SECONDS)
    kill_processes(set().union(*trees))
    for process in processes:
        process.wait(KILL_SECONDS)
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def kill_processes(processes: Collection[psutil.Process]) -> None:
    """Kill processes and wait until they are gone; a new process with the id of one that has ended is left alone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    with suppress(TimeoutError):  # a folder that they still write to could not be removed
        wait_until(lambda: not any(map(is_alive, processes)), KILL_SECONDS)


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process has not ended yet; one that has ended may still wait for its parent to notice."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def find_process_tree(root: int) -> set[psutil.Process]:
    """Return a process, given by its id, and all its descendants; nothing if it is gone."""
    with suppress(psutil.NoSuchProcess):
        return {psutil.Process(root)} | find_descendants(root)
    return set()


def find_descendants(root: int) -> set[psutil.Process]:
    """Return all descendants of a process, given by its id."""
    with suppress(psutil.NoSuchProcess):
        return {*psutil.Process(root).children(recursive=True)}
    return set()


def find_raylets(ray_folder: str) -> set[psutil.Process]:
    """Return the nodes of the Ray that runs in a folder, whoever their parent is by now."""
    psutil.process_iter.cache_clear()  # it remembers programs of processes that may run another one by now
    return {process for process in psutil.process_iter() if is_raylet(process, ray_folder)}


def is_raylet(process: psutil.Process, ray_folder: str = "") -> bool:
    """Return whether a process is a raylet of the Ray that runs in a folder."""
    with suppress(psutil.Error):  # it has ended meanwhile, or belongs to another user
        return Path(process.exe()).name == "raylet" and ray_folder in "\0".join(process.cmdline())
    return False


def find_free_ports(count: int) -> list[int]:
    """Return ports on loopback that no program listens on.

    They are below those that the system hands out: a new Ray actor could be given one before it is used.
    """
    candidates = range(MIN_FREE_PORT, max(first_ephemeral_port(), DEFAULT_EPHEMERAL_PORT))
    ports: list[int] = []
    for port in random.sample(candidates, len(candidates)):
        if len(ports) == count:
            break
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


def first_ephemeral_port() -> int:
    """Return the lowest port that Linux gives to sockets that ask for any."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])


def wait_until(condition: Callable[[], Any], seconds: float = 120, description: str = "") -> Any:
    """Return the value of `condition` once it is true; raise TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{description or condition} took longer than {seconds:.0f} s")
        time.sleep(0.05)
    return result
