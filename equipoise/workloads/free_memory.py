"""Memory that this process may still take: of the machine, of its control group and of its own limits."""

import resource
from pathlib import Path

import psutil

CGROUP_FOLDER = Path("/sys/fs/cgroup")


def find_free_memory() -> int:
    """Return the bytes that this process may still take, by the tightest of all limits."""
    limits = [psutil.virtual_memory().available, find_process_memory_left()]
    if (cgroup_left := find_cgroup_memory_left(CGROUP_FOLDER)) is not None:
        limits.append(cgroup_left)
    return int(max(0, min(limits)))


def find_process_memory_left() -> int:
    """Return the bytes up to the limits that `ulimit -d` and `ulimit -v` set; a very large number without any."""
    memory = psutil.Process().memory_info()
    usage = {resource.RLIMIT_DATA: memory.data, resource.RLIMIT_AS: memory.vms}
    limits = {kind: resource.getrlimit(kind)[0] for kind in usage}
    return min(
        (limits[kind] - taken for kind, taken in usage.items() if limits[kind] != resource.RLIM_INFINITY),
        default=1 << 62,
    )


def find_cgroup_memory_left(folder: Path) -> int | None:
    """Return the bytes up to the limit of a control group (version 2), as of a container; None without a limit.

    Cached files that the kernel drops on demand do not count as taken.
    """
    try:
        limit, taken = int((folder / "memory.max").read_text()), int((folder / "memory.current").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # another kind of system, or the limit is "max"
        return None
    return limit - taken + int(statistics.get("inactive_file", 0))
