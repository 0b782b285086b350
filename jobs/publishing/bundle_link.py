"""Symbolic links to bundles, which services watch: switch one in one step, and roll it back."""

import os
from pathlib import Path

from equipoise.bundle.folder import verify_bundle
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json, write_json


def require_link(link: Path) -> None:
    """Refuse a path that is not a symbolic link and cannot become one."""
    if link.exists() and not link.is_symlink():
        raise EquipoiseError(
            "path-kind",
            f"cannot switch --link {link}: it is not a symbolic link",
            "let the service watch a link to the bundle",
        )
    if not link.parent.is_dir():
        raise EquipoiseError(
            "path-missing", f"cannot create --link {link}: {link.parent} is not a folder", "create it first"
        )


def require_existing_link(link: Path) -> None:
    """Refuse a link that does not exist, from which no bundle can be read."""
    if not link.is_symlink():
        raise EquipoiseError(
            "path-missing", f"cannot read --link {link}: there is no such link", f"make it with ln -s BUNDLE {link}"
        )


def point_link(link: Path, target: Path) -> None:
    """Point a link to another bundle in one atomic step, and record its previous target beside it."""
    require_link(link)
    if link.is_symlink():
        write_json(previous_target_file(link), os.path.abspath(link.parent / link.readlink()))  # noqa: PTH100 - resolve() would follow links
    new_link = link.with_name(f".{link.name}.{os.getpid()}")
    new_link.symlink_to(target.absolute())
    new_link.replace(link)
    print(f"{link} -> {target}")


def read_previous_target(link: Path) -> Path:
    """Return the bundle that a link pointed to before, verified."""
    if not link.name or not previous_target_file(link).is_file():
        raise EquipoiseError(
            "rollback-impossible",
            f"cannot roll back {link}: no previous bundle is recorded",
            "point the link by hand",
        )
    target = read_json(previous_target_file(link))
    if not isinstance(target, str) or not target:
        raise EquipoiseError(
            "rollback-impossible",
            f"cannot roll back {link}: {previous_target_file(link)} names no bundle",
            "point the link by hand",
        )
    verify_bundle(Path(target))
    return Path(target)


def previous_target_file(link: Path) -> Path:
    """Return the path of the file that records the previous target of a link."""
    return link.with_name(f".{link.name}.before")
