"""Operating-system errors about a path that the user gave, reported as a mistake that the user can mend."""

from collections.abc import Iterator
from contextlib import contextmanager

from equipoise.errors import EquipoiseError
from equipoise.storage.retry import StoreUnavailable, redacted_error_reason


@contextmanager
def report_path_errors(problem: str, remedy: str = "") -> Iterator[None]:
    """Turn an OSError of the block into an EquipoiseError; a store that does not answer is no mistake of the user."""
    try:
        yield
    except StoreUnavailable:
        raise
    except OSError as error:
        code = "path-missing" if isinstance(error, FileNotFoundError) else "path-access"
        raise EquipoiseError(code, f"{problem}: {error.strerror or redacted_error_reason(error)}", remedy) from error
