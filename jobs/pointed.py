"""Links to bundles, which services watch."""

import os
from pathlib import Path

from equipoise import store


def pointed(link: Path, target: Path) -> None:
    """A link to another bundle, in one step; where it pointed before is remembered beside it."""
    if link.exists() and not link.is_symlink():
        raise ValueError(f"--link {link} is no link: let the service watch a link to the bundle")
    if link.is_symlink():
        store.write_json(link.with_name(f".{link.name}.before"), str(link.readlink()))
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(target.absolute())
    fresh.replace(link)
    print(f"{link} -> {target}")
