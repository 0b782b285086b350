"""Requests kept for labelling: list them, give them labels, and export what is labelled as a folder to train on."""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from equipoise.bundle import manifest
from equipoise.captures.capture import POOLS
from equipoise.captures.store import Captures
from equipoise.storage import atomic as store
from jobs.cli.paths import require_place, require_plain, unusable

FIRST = 10  # captures shown


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    capture: str
    """folder or URL (s3://...) of the captures"""
    labels: Path | None = None
    """CSV of id,label: labels to give, all of them or none"""
    bundle: str | None = None
    """whose classes labels are from; all classes that captures were scored for if not given"""
    out: Path | None = None
    """folder for labelled captures, OUT/CLASS/ID.png, to train on by --workload folder; must not exist"""
    json: bool = False
    """print JSON"""


def main() -> int:
    """Exit status: 0 done, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        found = done(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if asked.json else told(found))
    return 0


def done(asked: Asked) -> dict[str, Any]:
    """What was labelled and exported, or what there is if neither was asked for."""
    require_plain(asked.capture, asked.labels, asked.bundle, asked.out)
    require_place(asked.capture)
    captures = Captures(asked.capture)
    found: dict[str, Any] = {}
    if asked.labels:
        found["labelled"] = captures.labels(read(asked.labels), classes(captures, asked.bundle))
    if asked.out:
        of = bundle_classes(asked.bundle) if asked.bundle else None
        found |= {"exported": captures.exported(asked.out, of), "out": str(asked.out), "skipped": captures.skipped}
    return found or listing(captures)


def read(path: Path) -> str:
    """The text of a CSV."""
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ValueError(f"--labels {path} cannot be read ({error.strerror}): give a CSV of id,label") from None
    except UnicodeDecodeError:
        raise ValueError(f"--labels {path} is not a text: give a CSV of id,label, in UTF-8") from None


def classes(captures: Captures, path: str | None) -> list[str]:
    """Names that a label may have."""
    if path:
        return bundle_classes(path)
    found = list(dict.fromkeys(name for one in captures.listed(most=None) for name in one["scores"]))
    if not found:
        raise ValueError(f"{captures.place} holds no captures: there is nothing to label")
    return found


def bundle_classes(path: str) -> list[str]:
    """Of a bundle, in a folder or behind a URL."""
    names: list[str] = manifest.checked(store.local(path))["classes"]
    return names


def listing(captures: Captures) -> dict[str, Any]:
    """What there is."""
    held = captures.listed(most=None)
    counts = Counter((one["pool"], one["label_given"] is not None) for one in held)
    pools = {pool: {"labelled": counts[pool, True], "unlabelled": counts[pool, False]} for pool in POOLS}
    return {"captures": pools, "skipped": captures.skipped, "first": held[:FIRST]}


def told(found: dict[str, Any]) -> str:
    """For people."""
    lines = []
    if "labelled" in found:
        lines.append(f"{found['labelled']} labelled")
    if "exported" in found:
        counts = ", ".join(f"{count} {name}" for name, count in found["exported"].items())
        lines.append(f"{found['out']}: {sum(found['exported'].values())} pictures ({counts})")
    for pool, counts in found.get("captures", {}).items():
        lines.append(f"{pool}: {counts['unlabelled']} to label, {counts['labelled']} labelled")
    lines += [row(one) for one in found.get("first", [])]
    if found.get("skipped"):
        lines.append(f"files passed over that are no whole capture: {found['skipped']}")
    return "\n".join(lines)


def row(one: dict[str, Any]) -> str:
    """A capture, on a line."""
    given = f", labelled {one['label_given']}" if one["label_given"] is not None else ""
    return f"  {one['id']}  {one['pool']:5}  {one['label']} {one['score']:.2f}{given}"


if __name__ == "__main__":
    sys.exit(main())
