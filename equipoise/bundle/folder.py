"""Folder of a bundle: its files, their digests in bundle.json, and the checks that they are as published.

A folder that is incomplete, not a bundle or changed since it was published is refused with a one-sentence error.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from equipoise.bundle.manifest import BUNDLE_SCHEMA_VERSION, Manifest
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json, write_json
from equipoise.type_aliases import JsonObject

PROGRAM_FILE, WEIGHTS_FILE, ONNX_FILE = "program.json", "weights.safetensors", "model.onnx"
MANIFEST_FILE, REFERENCE_FILE, MODEL_CARD_FILE = "bundle.json", "reference.npz", "card.md"
REQUIRED_FILES = {PROGRAM_FILE, WEIGHTS_FILE, REFERENCE_FILE, MODEL_CARD_FILE}


def verify_bundle(folder: Path) -> Manifest:
    """Return the manifest of a bundle whose files are all as published; refuse any other folder."""
    manifest = Manifest.from_json(read_sealed_manifest(folder), folder / MANIFEST_FILE)
    require_complete_bundle(folder, manifest.files)
    for name, expected_sha256 in manifest.files.items():
        require_unchanged_file(folder, name, expected_sha256)
    return manifest


def read_sealed_manifest(folder: Path) -> JsonObject:
    """Read bundle.json without decoding it; refuse another schema version, and a file that its digest does not fit."""
    path = require_manifest(folder)
    contents = read_json(path)
    if not isinstance(contents, dict) or "schema" not in contents:
        raise EquipoiseError(
            "bundle-missing", f"cannot load {path}: it has no schema version", "give the folder of a bundle"
        )
    if contents["schema"] != BUNDLE_SCHEMA_VERSION:
        raise EquipoiseError(
            "bundle-version",
            f"cannot load {folder}: it has schema {contents['schema']!r} and this version reads "
            f"{BUNDLE_SCHEMA_VERSION}",
            "publish it again",
        )
    if contents.get("digest") != manifest_digest(contents):
        raise EquipoiseError(
            "bundle-changed", f"cannot load {path}: it was changed since it was published", "publish it again"
        )
    return contents


def require_manifest(folder: Path) -> Path:
    """Return the path of a bundle's manifest; refuse a folder without one."""
    try:
        has_manifest = (folder / MANIFEST_FILE).is_file()
    except OSError as error:  # a name that is too long for the file system
        raise EquipoiseError("bundle-missing", f"{str(folder)[:80]} is not a bundle ({error.strerror})") from None
    if not has_manifest:
        raise EquipoiseError(
            "bundle-missing",
            f"{folder} is not a bundle: it has no {MANIFEST_FILE}",
            "publish one with equipoise publish",
        )
    return folder / MANIFEST_FILE


def require_complete_bundle(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a bundle that lacks a required file, or holds a file that its manifest does not list."""
    if extra := {path.name for path in folder.iterdir()} - files.keys() - {MANIFEST_FILE}:
        raise EquipoiseError(
            "bundle-changed",
            f"cannot load {folder}: it holds {min(extra)}, which was not published with it",
            "remove that file",
        )
    if missing := REQUIRED_FILES - files.keys():
        raise EquipoiseError(
            "bundle-invalid", f"cannot load {folder}: {', '.join(sorted(missing))} is missing", "publish it again"
        )


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


def manifest_digest(contents: JsonObject) -> str:
    """Return the SHA-256 of bundle.json without its own digest; it covers the files through their digests."""
    text = json.dumps({name: value for name, value in contents.items() if name != "digest"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write bundle.json with the digests of all other files in the folder."""
    files = {path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST_FILE}
    contents = replace(manifest, files=files).to_json()
    write_json(folder / MANIFEST_FILE, contents | {"digest": manifest_digest(contents)})
