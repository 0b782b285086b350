"""Commands for finite work, run as `python -m jobs.NAME`, `equipoise NAME` or through `ray job submit`."""

import os
import secrets
import sys
from pathlib import Path

LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""makes Ray take loopback as this machine's address and listen nowhere else, on Linux too in spite of its name"""


def isolate_local_ray() -> None:
    """Make a Ray that this command starts listen on loopback alone and accept nobody but the command.

    If there is a running Ray to join, its own settings hold. Ray reads these variables when it is imported, so they
    must be set here, before any command imports it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports to Ray's developers
    running = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own folder
    if not os.environ.keys() & {"RAY_ADDRESS", "RAY_AUTH_MODE"} and not running.exists():
        os.environ |= LOOPBACK_ENV | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


# `python -m jobs.NAME` imports this package first; a head node is left out, it takes jobs from holders of its token
if sys.argv[0] == "-m" and "jobs.cluster.local" not in sys.orig_argv:
    isolate_local_ray()
