"""bundle.json: what a bundle says of itself, with the digest of each of its files and one of its own.

A folder that is not whole, not ours or changed since it was published is refused in a sentence.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equipoise.bundle.engines import PROGRAM_FILE, WEIGHTS_FILE
from equipoise.storage.atomic import read_json, write_json

BUNDLE_SCHEMA_VERSION = 1
MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_CHANNELS = 2048, 4
MANIFEST_FILE, REFERENCE_FILE, MODEL_CARD_FILE = "bundle.json", "reference.npz", "card.md"
REQUIRED_FILES = {PROGRAM_FILE, WEIGHTS_FILE, REFERENCE_FILE, MODEL_CARD_FILE}
MANIFEST_TYPES: dict[str, type] = {
    "name": str,
    "workload": str,
    "classes": list,
    "input": dict,
    "engine": dict,
    "metrics": dict,
    "files": dict,
}
"""what bundle.json must hold for a bundle to be loaded"""


def verify_bundle(folder: Path) -> dict[str, Any]:
    """Return the facts of a bundle whose every file is as it was published, and refuse any other folder."""
    try:
        there = (folder / MANIFEST_FILE).is_file()
    except OSError as error:  # a name that no file system takes
        raise ValueError(f"{str(folder)[:80]} is not a bundle ({error.strerror})") from None
    if not there:
        raise ValueError(f"{folder} is not a bundle: it has no {MANIFEST_FILE}; publish one with jobs.publish")
    facts = read_json(folder / MANIFEST_FILE)
    if not isinstance(facts, dict) or "schema" not in facts:
        raise ValueError(f"{folder / MANIFEST_FILE} is not a bundle's: it names no schema")
    if facts["schema"] != BUNDLE_SCHEMA_VERSION:
        raise ValueError(
            f"{folder} was written in schema {facts['schema']!r}, and this version reads {BUNDLE_SCHEMA_VERSION}"
        )
    if facts.get("digest") != manifest_digest(facts):
        raise ValueError(f"{folder / MANIFEST_FILE} was changed since it was published: publish again")
    for name, kind in MANIFEST_TYPES.items():
        if not isinstance(facts.get(name), kind):
            raise ValueError(f"{folder / MANIFEST_FILE} lacks {name}, or has it in another form")
    if not all(isinstance(name, str) for name in facts["classes"]) or len(set(facts["classes"])) < len(
        facts["classes"]
    ):
        raise ValueError(f"{folder / MANIFEST_FILE} names classes that are no texts, or one twice: publish again")
    if strange := {path.name for path in folder.iterdir()} - facts["files"].keys() - {MANIFEST_FILE}:
        raise ValueError(f"{folder} holds what was not published with it, {min(strange)}: take that away")
    if missing := REQUIRED_FILES - facts["files"].keys():
        raise ValueError(f"{folder} lacks {', '.join(sorted(missing))}: publish again")
    for name, expected in facts["files"].items():
        require_unchanged_file(folder, name, expected)
    return facts


def require_unchanged_file(folder: Path, name: str, expected_sha256: str) -> None:
    """Refuse a file that is missing, elsewhere or changed."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{folder} names a file outside of itself, {name!r}")
    if (folder / name).is_symlink():
        raise ValueError(f"{folder / name} is a link: copy the bundle whole")
    if not (folder / name).is_file():
        raise ValueError(f"{folder} lacks {name}: copy the bundle whole, or publish again")
    if file_sha256(folder / name) != expected_sha256:
        raise ValueError(f"{folder / name} was changed since it was published: copy it again, or publish again")


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return one digest for all facts, and by them for all files."""
    text = json.dumps({name: value for name, value in manifest.items() if name != "digest"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write bundle.json, with the digests of the files that are there."""
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    whole = {"schema": BUNDLE_SCHEMA_VERSION, **manifest, "files": files}
    write_json(folder / MANIFEST_FILE, whole | {"digest": manifest_digest(whole)})


def parse_input_shape(manifest: dict[str, Any]) -> tuple[int, ...]:
    """Return channels, height and width of the pictures that a model takes."""
    shape = tuple(manifest["input"].get(side) for side in ("channels", "height", "width"))
    most = (MAX_IMAGE_CHANNELS, MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_SIDE_PIXELS)
    if not all(type(side) is int and 1 <= side <= end for side, end in zip(shape, most, strict=True)):
        raise ValueError(f"{MANIFEST_FILE} asks for pictures of {shape}: each side must be from 1 to its most, {most}")
    return shape


def parse_temperature(manifest: dict[str, Any]) -> float:
    """Return by what scores are divided before softmax."""
    found = manifest["metrics"].get("temperature")
    if not isinstance(found, int | float) or not 0 < found < math.inf:
        raise ValueError(f"{MANIFEST_FILE} has a temperature of {found!r}: it must be a number above 0")
    return float(found)
