"""Kill what a command has started: all processes that carry its mark in their environment, whoever their parent is.

Run as a program with a mark, it does so once its standard input ends: when the process that started it is gone.
"""

import ctypes
import os
import sys
from contextlib import suppress

import psutil

MARK_VARIABLE = "EQUIPOISE_COMMAND_ID"
PR_SET_CHILD_SUBREAPER = 36  # of Linux


def kill_marked_processes(mark: str) -> None:
    """Kill all processes with a mark until there are none: one may start another one meanwhile."""
    while marked := find_marked_processes(mark):
        for process in marked:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(marked, timeout=1)


def adopt_orphans() -> None:
    """Make processes whose parent ends children of this one, on Linux, so that it finds those that lost their mark."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children() -> None:
    """Kill all children of this process, and theirs, and forget them."""
    while children := psutil.Process().children(recursive=True):
        for process in children:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for process in children:
            with suppress(ChildProcessError):  # a grandchild: it becomes a child when its parent is gone
                os.waitpid(process.pid, 0)


def find_marked_processes(mark: str) -> list[psutil.Process]:
    """Return the processes with a mark in their environment that have not ended yet."""
    return [process for process in map(open_process, psutil.pids()) if process and has_mark(process, mark)]


def open_process(pid: int) -> psutil.Process | None:
    """Return a process by its id; None if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid)
    return None


def has_mark(process: psutil.Process, mark: str) -> bool:
    """Return whether a process carries a mark and has not ended."""
    with suppress(psutil.Error, OSError):  # it has ended meanwhile, or belongs to another user
        return bool(process.environ().get(MARK_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE)
    return False


if __name__ == "__main__":
    if os.fork():  # Ray kills the children of a worker that ends, but not their children
        os._exit(0)
    os.setsid()
    sys.stdin.read()
    kill_marked_processes(sys.argv[1])
