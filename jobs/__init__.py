"""Commands for finite work, run as `python -m jobs.NAME`, `equipoise NAME` or through `ray job submit`."""

import os
import secrets
from pathlib import Path

LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""makes Ray take loopback as this machine's address and listen nowhere else, on Linux too in spite of its name"""


def isolate_local_ray() -> None:
    """Make a Ray that this command starts listen on loopback alone and accept nobody but the command.

    If there is a running Ray to join, its own settings hold. Ray reads these variables when it is imported: a command
    calls this before its own imports, if it is the program that was started. A head node does not: it takes jobs from
    holders of its user's token.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports to Ray's developers
    running = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own folder
    if not os.environ.keys() & {"RAY_ADDRESS", "RAY_AUTH_MODE"} and not running.exists():
        os.environ |= LOOPBACK_ENV | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
