"""Manifest of a bundle (bundle.json): its metadata, the digest of each file, and a digest of the manifest itself.

A folder that is incomplete, not a bundle or changed since it was published is refused with a one-sentence error.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equipoise.bundle.engines import PROGRAM_FILE, WEIGHTS_FILE
from equipoise.errors import EquipoiseError
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
"""keys that bundle.json must hold for a bundle to be loaded, with their types"""


def verify_bundle(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle whose files are all as published; refuse any other folder."""
    try:
        has_manifest = (folder / MANIFEST_FILE).is_file()
    except OSError as error:  # a name that is too long for the file system
        raise EquipoiseError("bundle-missing", f"{str(folder)[:80]} is not a bundle ({error.strerror})") from None
    if not has_manifest:
        raise EquipoiseError(
            "bundle-missing", f"{folder} is not a bundle: it has no {MANIFEST_FILE}", "publish one with jobs.publish"
        )
    manifest = read_json(folder / MANIFEST_FILE)
    if not isinstance(manifest, dict) or "schema" not in manifest:
        raise EquipoiseError(
            "bundle-missing",
            f"cannot load {folder / MANIFEST_FILE}: it has no schema version",
            "give the folder of a bundle",
        )
    if manifest["schema"] != BUNDLE_SCHEMA_VERSION:
        raise EquipoiseError(
            "bundle-version",
            f"cannot load {folder}: it has schema {manifest['schema']!r} and this version reads "
            f"{BUNDLE_SCHEMA_VERSION}",
            "publish it again",
        )
    if manifest.get("digest") != manifest_digest(manifest):
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder / MANIFEST_FILE}: it was changed since it was published",
            "publish it again",
        )
    for name, kind in MANIFEST_TYPES.items():
        if not isinstance(manifest.get(name), kind):
            raise EquipoiseError(
                "bundle-invalid",
                f"cannot load {folder / MANIFEST_FILE}: {name} is missing or not a {kind.__name__}",
                "publish it again",
            )
    classes = manifest["classes"]
    if not all(isinstance(name, str) for name in classes) or len(set(classes)) < len(classes):
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot load {folder / MANIFEST_FILE}: its class names are not strings or not unique",
            "publish it again",
        )
    if extra := {path.name for path in folder.iterdir()} - manifest["files"].keys() - {MANIFEST_FILE}:
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder}: it holds {min(extra)}, which was not published with it",
            "remove that file",
        )
    if missing := REQUIRED_FILES - manifest["files"].keys():
        raise EquipoiseError(
            "bundle-invalid", f"cannot load {folder}: {', '.join(sorted(missing))} is missing", "publish it again"
        )
    for name, expected_sha256 in manifest["files"].items():
        require_unchanged_file(folder, name, expected_sha256)
    return manifest


def require_unchanged_file(folder: Path, name: str, expected_sha256: str) -> None:
    """Refuse a bundle's file that is missing, changed, a link or outside of the folder."""
    if Path(name).name != name or name.startswith("."):
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot load {folder}: its manifest lists {name!r}, which is not a file in the bundle",
            "publish it again",
        )
    if (folder / name).is_symlink():
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder / name}: it is a symbolic link",
            "copy the whole bundle with its files",
        )
    if not (folder / name).is_file():
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder}: {name} is missing",
            "copy the whole bundle or publish it again",
        )
    if file_sha256(folder / name) != expected_sha256:
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder / name}: it was changed since it was published",
            "copy or publish the bundle again",
        )


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its own digest; it covers the files through their digests."""
    text = json.dumps({name: value for name, value in manifest.items() if name != "digest"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write bundle.json with the digests of all files in the folder."""
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir())}
    complete = {"schema": BUNDLE_SCHEMA_VERSION, **manifest, "files": files}
    write_json(folder / MANIFEST_FILE, complete | {"digest": manifest_digest(complete)})


def parse_input_shape(manifest: dict[str, Any]) -> tuple[int, ...]:
    """Return channels, height and width in pixels of the images that a model takes."""
    shape = tuple(manifest["input"].get(side) for side in ("channels", "height", "width"))
    limits = (MAX_IMAGE_CHANNELS, MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_SIDE_PIXELS)
    if not all(type(side) is int and 1 <= side <= limit for side, limit in zip(shape, limits, strict=True)):
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot load {MANIFEST_FILE}: its input shape is {shape}; channels, height and width must be integers "
            f"from 1 to {limits}",
        )
    return shape


def parse_temperature(manifest: dict[str, Any]) -> float:
    """Return the calibration temperature by which the logits are divided before softmax."""
    temperature = manifest["metrics"].get("temperature")
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise EquipoiseError(
            "bundle-invalid",
            f"cannot load {MANIFEST_FILE}: its temperature is {temperature!r}; it must be a finite number above 0",
        )
    return float(temperature)
