"""Links to bundles, which services watch."""

import os
from pathlib import Path

from equipoise.bundle.manifest import verify_bundle
from equipoise.storage.atomic import read_json, write_json


def require_link(link: Path) -> None:
    """Refuse what cannot be made to point elsewhere."""
    if link.exists() and not link.is_symlink():
        raise ValueError(f"--link {link} is no link: let the service watch a link to the bundle")
    if not link.parent.is_dir():
        raise ValueError(f"--link {link} would lie in {link.parent}, which is no folder: make it first")


def point_link(link: Path, target: Path) -> None:
    """A link to another bundle, in one step; where it pointed before is remembered beside it."""
    require_link(link)
    if link.is_symlink():
        write_json(previous_target_file(link), os.path.abspath(link.parent / link.readlink()))  # noqa: PTH100 - not through links
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target.absolute())
    fresh.replace(link)
    print(f"{link} -> {target}")


def read_previous_target(link: Path) -> Path:
    """The bundle to which it pointed before."""
    if not previous_target_file(link).is_file():
        raise ValueError(f"nothing is known of a bundle before {link}: point the link by hand")
    target = read_json(previous_target_file(link))
    if not isinstance(target, str) or not target:
        raise ValueError(f"{previous_target_file(link)} names no bundle: point the link by hand")
    verify_bundle(Path(target))
    return Path(target)


def previous_target_file(link: Path) -> Path:
    """The file that remembers."""
    return link.with_name(f".{link.name}.before")
