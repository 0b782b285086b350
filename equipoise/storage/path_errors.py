"""Operating-system errors about a path that the user gave, reported as a mistake that the user can mend."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from equipoise.errors import EquipoiseError
from equipoise.storage.retry import StoreUnavailable, redacted_error_reason

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL_REMEDY = "make room and run the same command again"


@contextmanager
def report_path_errors(problem: str, remedy: str = "") -> Iterator[None]:
    """Turn an OSError of the block into an EquipoiseError; a store that does not answer is no mistake of the user."""
    try:
        yield
    except StoreUnavailable:
        raise
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise EquipoiseError("disk-full", f"{problem}: {error.strerror}", DISK_FULL_REMEDY) from error
        code = "path-missing" if isinstance(error, FileNotFoundError) else "path-access"
        raise EquipoiseError(code, f"{problem}: {error.strerror or redacted_error_reason(error)}", remedy) from error
