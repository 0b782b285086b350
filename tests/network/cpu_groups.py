"""Control groups that take CPU time away: all processes of a group together have a number of cores, also a part of one.

Needs root and a control group controller for CPU time, of version 1 or 2, that can be written. The kernel stops the
processes of a group for the rest of each period in which they have used up their time. Before that they come first, so
that they have as much on a busy machine.
"""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import psutil

from jobs.cluster.processes import wait_until

PERIOD_MICROSECONDS = 20_000  # short beside a training step of a slow host, so that steps are slow and not halting
FIRST_SHARES, SECOND_WEIGHT = 65_536, 10_000  # against 1024 and 100 of other processes
FIRST_VERSION, SECOND_VERSION = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
ENTER_SCRIPT = 'echo $$ > "$0" && exec "$@"'
REMOVAL_SECONDS = 10.0  # for processes that were killed to leave their group


def find_missing_cpu_groups() -> str | None:
    """Return why processes cannot be given a part of a core on this machine, or None if they can."""
    if os.geteuid() != 0:
        return "CPU quotas of hosts need root"
    probe = f"eq-probe-{os.getpid()}"
    try:
        set_cpu_quota(probe, 0.5)
        remove_cpu_group(probe)
    except OSError as error:
        return f"CPU quotas of hosts need a control group for CPU time that can be written: {error}"
    return None


def find_group_folder(name: str) -> Path:
    """Return the folder of a group, which may not exist yet."""
    return (FIRST_VERSION if (FIRST_VERSION / "cpu.shares").exists() else SECOND_VERSION) / name


def set_cpu_quota(name: str, cores: float) -> None:
    """Create a group if there is none of this name, and give its processes so many cores together."""
    folder, quota = find_group_folder(name), round(cores * PERIOD_MICROSECONDS)
    if folder.parent == FIRST_VERSION:
        folder.mkdir(exist_ok=True)
        (folder / "cpu.shares").write_text(str(FIRST_SHARES))
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (folder.parent / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir(exist_ok=True)
        (folder / "cpu.weight").write_text(str(SECOND_WEIGHT))
        (folder / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")


def move_to_group(name: str, list_processes: Callable[[], Collection[psutil.Process]]) -> None:
    """Move processes to a group until all that are listed are in it: those that they start meanwhile may be missed."""
    members = find_group_folder(name) / "cgroup.procs"
    while outside := {process.pid for process in list_processes()} - {int(pid) for pid in members.read_text().split()}:
        for pid in outside:
            with suppress(ProcessLookupError):  # it has ended in the meantime
                members.write_text(str(pid))


def build_entering_command(name: str) -> tuple[str, ...]:
    """Return what a command line must begin with so that it runs in a group; nothing if there is no such group."""
    members = find_group_folder(name) / "cgroup.procs"
    return ("sh", "-c", ENTER_SCRIPT, str(members)) if members.exists() else ()


def remove_cpu_group(name: str) -> None:
    """Remove a group whose processes have ended, if it exists."""
    folder = find_group_folder(name)
    if folder.exists():
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), REMOVAL_SECONDS, f"processes of {name} to end")
        folder.rmdir()
