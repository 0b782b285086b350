"""Links to bundles, which services watch."""

import os
from pathlib import Path

from equipoise.bundle import manifest
from equipoise.storage import atomic as store


def require_link(link: Path) -> None:
    """Refuse what cannot be made to point elsewhere."""
    if link.exists() and not link.is_symlink():
        raise ValueError(f"--link {link} is no link: let the service watch a link to the bundle")
    if not link.parent.is_dir():
        raise ValueError(f"--link {link} would lie in {link.parent}, which is no folder: make it first")


def pointed(link: Path, target: Path) -> None:
    """A link to another bundle, in one step; where it pointed before is remembered beside it."""
    require_link(link)
    if link.is_symlink():
        store.write_json(memory(link), os.path.abspath(link.parent / link.readlink()))  # noqa: PTH100 - not through links
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target.absolute())
    fresh.replace(link)
    print(f"{link} -> {target}")


def before(link: Path) -> Path:
    """The bundle to which it pointed before."""
    if not memory(link).is_file():
        raise ValueError(f"nothing is known of a bundle before {link}: point the link by hand")
    target = store.read_json(memory(link))
    if not isinstance(target, str) or not target:
        raise ValueError(f"{memory(link)} names no bundle: point the link by hand")
    manifest.checked(Path(target))
    return Path(target)


def memory(link: Path) -> Path:
    """The file that remembers."""
    return link.with_name(f".{link.name}.before")
