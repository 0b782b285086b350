"""Names of files and folders in requests: relative to the results folder, and never outside of it."""

from pathlib import Path, PurePosixPath

from equipoise.errors import EquipoiseError

MAX_RESULT_NAME_LENGTH = 1000  # characters


def resolve_result_path(results: Path, name: str, must_exist: bool = True) -> Path:
    """Return the path of a file or folder below the results; refuse a name that leads out of them.

    A name is relative, with `/` between folders; it holds no `..`, null byte or hidden folder, and no symbolic link
    on its way leads out.
    """
    parts = PurePosixPath(name).parts
    is_plain = bool(parts) and len(name) <= MAX_RESULT_NAME_LENGTH and name.isprintable() and "\\" not in name
    if not is_plain or any(part == ".." or part.startswith((".", "/")) for part in parts):
        problem = f"cannot use the name {name[:80]!r}: it must lie below the results folder"
        raise EquipoiseError("path-kind", problem, "give a relative name such as runs/first")
    path = results.joinpath(*parts)
    try:
        resolved, root = path.resolve(), results.resolve()
        is_there = path.exists()
    except OSError as error:  # too long a name, or no permission
        raise EquipoiseError("path-access", f"cannot use the name {name[:80]!r}: {error.strerror}") from None
    except RuntimeError:  # pathlib's
        problem = f"cannot use the name {name[:80]!r}: it is a link that leads back to itself"
        raise EquipoiseError("path-access", problem, "remove the link") from None
    if resolved != root and root not in resolved.parents:
        raise EquipoiseError(
            "path-kind", f"cannot use {name[:80]!r}: it is a link that leads out of the results folder"
        )
    if must_exist and not is_there:
        raise EquipoiseError("path-missing", f"cannot find {name[:80]!r} below the results folder")
    return path
