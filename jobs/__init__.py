"""Commands for finite work, run as `python -m jobs.NAME`, `equipoise NAME` or through `ray job submit`."""

import os
import secrets
from pathlib import Path

from equipoise.startup_signals import exit_on_startup_signals

LOOPBACK_ENV = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""makes Ray take loopback as this machine's address and listen nowhere else, on Linux too in spite of its name"""


def prepare_process() -> None:
    """Prepare the process of a command: Ctrl-C ends it during its imports too, and its own Ray is isolated.

    A command calls this before its other imports, if it is the program that was started.
    """
    exit_on_startup_signals()
    isolate_local_ray()


def isolate_local_ray() -> None:
    """Make a Ray that this command starts listen on loopback alone and accept nobody but the command.

    If there is a running Ray to join, its own settings hold. Ray reads these variables when it is imported. A head node
    does not call this: it takes jobs from holders of its user's token.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports to Ray's developers
    running = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")  # noqa: S108 - Ray's own folder
    if not os.environ.keys() & {"RAY_ADDRESS", "RAY_AUTH_MODE"} and not running.exists():
        os.environ |= LOOPBACK_ENV | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
