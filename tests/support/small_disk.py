"""A disk that is small enough to fill, in memory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a size such as 64k for the `with` block, or skip the test where that is not permitted."""
    folder.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or not mount or not unmount:
        pytest.skip("mounting a small disk needs root and the commands mount and umount")
    command = [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"cannot mount a small disk here: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run([unmount, "--lazy", folder], check=True)
