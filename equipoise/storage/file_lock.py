"""Lock of a file between threads and processes, for documents that are read, changed and written as one step."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_file_lock(path: Path) -> Iterator[None]:
    """Keep all others that lock a file out until the end of the block; the lock of a killed process is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
