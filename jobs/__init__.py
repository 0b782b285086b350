"""Finite work, each part a command: `python -m jobs.NAME`, alone or by `ray job submit`."""

import os
import secrets
import sys
from pathlib import Path

LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""named for other systems than this: loopback is taken for this machine's address, and Ray listens nowhere else"""


def isolate_local_ray() -> None:
    """The Ray that a command starts for itself listens on loopback alone, and lets nobody in but the command.

    Where there is one to join, its own rules hold. Ray reads this as it is imported, so it has to happen here.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # its makers would be told of each
    running = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's place
    if not os.environ.keys() & {"RAY_ADDRESS", "RAY_AUTH_MODE"} and not running.exists():
        os.environ |= LOOPBACK_ENV | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


# of a command, while Python looks for it; a head takes jobs from whoever knows its user's token
if sys.argv[0] == "-m" and "jobs.cluster.local" not in sys.orig_argv:
    isolate_local_ray()
