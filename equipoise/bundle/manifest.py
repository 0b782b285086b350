"""Manifest of a bundle (bundle.json): its metadata, the digest of each file, and a digest of the manifest itself.

A folder that is incomplete, not a bundle or changed since it was published is refused with a one-sentence error.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta

from equipoise.bundle.condition_entry import ConditionEntry
from equipoise.bundle.evaluation import Evaluation
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.target import Target
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

BUNDLE_SCHEMA_VERSION: Final = 1
MAX_IMAGE_SIDE_PIXELS, MAX_IMAGE_CHANNELS = 2048, 4
PROGRAM_FILE, WEIGHTS_FILE, ONNX_FILE = "program.json", "weights.safetensors", "model.onnx"
MANIFEST_FILE, REFERENCE_FILE, MODEL_CARD_FILE = "bundle.json", "reference.npz", "card.md"
REQUIRED_FILES = {PROGRAM_FILE, WEIGHTS_FILE, REFERENCE_FILE, MODEL_CARD_FILE}
VERSION_DIGITS = 12  # of the digest: enough to distinguish all bundles that a service ever loads

SidePixels = Annotated[int, Meta(ge=1, le=MAX_IMAGE_SIDE_PIXELS)]


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """Images that a model takes."""

    type: Literal["uint8"] = "uint8"
    """type of the pixels"""
    channels: Annotated[int, Meta(ge=1, le=MAX_IMAGE_CHANNELS)]
    """1 for gray images, 3 for RGB"""
    height: SidePixels
    """height in pixels"""
    width: SidePixels
    """width in pixels"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width in pixels."""
        return self.channels, self.height, self.width


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """How photographs become a model's input, for people who use its programs without this package."""

    picture: str
    """orientation, crop and scaling, in words"""
    mean: list[float]
    """mean of each channel, subtracted by the program"""
    std: list[float]
    """standard deviation of each channel, by which the program divides"""


@dataclass(frozen=True)
class EngineResult:
    """Agreement of one engine with eager PyTorch, and its seconds per call."""

    engine: str
    """name of the engine"""
    seconds: dict[int, float] | None
    """median seconds per call by batch size; None if the engine does not run here"""
    error: float | None
    """largest difference of a score from eager's, relative to eager's largest score; None if it does not run here"""
    agrees: bool
    """whether every label equals eager's and the error is small enough"""
    why_not: str = ""
    """exception that kept the engine from running here; empty if it runs"""


@dataclass(frozen=True, kw_only=True)
class EngineEntry:
    """Engine that a model is served with, the reason for it, and the measurements of all engines."""

    name: str
    """engine that the model is served with"""
    why: str
    """reason for choosing it"""
    table: list[EngineResult]
    """measurements of all engines"""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Contents of bundle.json, in their order.

    `config`, `remedy` and `plan` stay JSON until somebody adapts the model: a service needs none of them, and should
    not refuse a bundle because another version trained it with other options.
    """

    schema: Literal[1] = BUNDLE_SCHEMA_VERSION
    """version of the format"""
    name: str
    """name of the model in a service"""
    workload: str
    """workload that the model learned first"""
    classes: list[str]
    """class names in the order of the scores"""
    input: InputSpec
    """images that the model takes"""
    preprocessing: ImagePreprocessing
    """how photographs become its input"""
    examples: dict[str, int]
    """number of examples in each split"""
    metrics: Evaluation
    """evaluation on the test split"""
    config: JsonObject
    """options that the model was trained with: the fields of `TrainConfig`, decoded by `decode_config`"""
    parameters: int
    """number of weights"""
    target: float | None
    """value of the validation metric at which training stops; None if it stops at its number of examples"""
    lower_is_better: bool = False
    """whether a lower metric is a better one; left out of the file if a higher one is"""
    published: str
    """date and time of the publication"""
    status: str
    """status of the run when it ended"""
    seen: int
    """examples seen in training"""
    machine: HardwareFacts
    """machine on which the engines were measured"""
    versions: dict[str, str]
    """versions of the packages that the bundle was published with"""
    engine: EngineEntry
    """engine that the model is served with, and the measurements of all"""
    remedy: JsonObject | None = None
    """drift that the model was adapted to, a `DriftCondition`; left out of the file if it was not adapted"""
    conditions: tuple[ConditionEntry, ...] = ()
    """conditions that the model knows beside that of its reference split; left out of the file if there are none"""
    plan: JsonObject | None = None
    """contents of the plan.json that the model was trained by, a `PlanDocument`"""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, by name"""
    digest: str = ""
    """SHA-256 of the manifest without this line"""

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise EquipoiseError("bundle-invalid", "its class names are not unique")
        if len({condition.name for condition in self.conditions}) < len(self.conditions):
            raise EquipoiseError("bundle-invalid", "the names of its conditions are not unique")

    @property
    def goal(self) -> Target:
        """Target of the training with its direction."""
        return Target(value=self.target, lower_is_better=self.lower_is_better)

    @property
    def version(self) -> str:
        """Version of the bundle, by which requests and verdicts name it."""
        return self.digest[:VERSION_DIGITS]

    def to_json(self) -> JsonObject:
        """Return the contents of bundle.json."""
        contents: JsonObject = msgspec.to_builtins(self, str_keys=True) | {"machine": self.machine.to_json()}
        absent = {"remedy"} if self.remedy is None else set()
        absent |= set() if self.conditions else {"conditions"}
        absent |= set() if self.lower_is_better else {"lower_is_better"}
        return {key: value for key, value in contents.items() if key not in absent}

    @classmethod
    def from_json(cls, contents: object, path: Path) -> Self:
        """Build a manifest from the contents of bundle.json, which were read from `path`."""
        return decode_json_value(
            contents, cls, code="bundle-invalid", problem=f"cannot load {path}", remedy="publish it again"
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a bundle.json, without a look at the other files of the bundle."""
        return cls.from_json(read_json(path), path)

    def decode_config(self) -> TrainConfig:
        """Return the options that the model was trained with; refuse those of another version of this package."""
        problem = f"cannot tell how the model {self.name} was trained"
        names = {option.name for option in fields(TrainConfig)}
        if different := sorted(self.config.keys() ^ names):
            verb = "lacks" if different[0] in names else "has the unknown option"
            raise EquipoiseError("bundle-invalid", f"{problem}: its config {verb} {different[0]}", "publish it again")
        return decode_json_value(
            self.config, TrainConfig, code="bundle-invalid", problem=problem, remedy="publish it again"
        )


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
            "bundle-missing", f"{folder} is not a bundle: it has no {MANIFEST_FILE}", "publish one with jobs.publish"
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
