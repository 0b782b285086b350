"""One request kept for labelling (a capture) as two files: its image as PNG and its metadata as JSON.

The image is what the model took. Of a request to a detector it is the photograph that was sent, in which people draw
boxes; a uniform sample, which nobody labels, holds what the model took.
"""

import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from equipoise.boxes.found_box import FoundBox
from equipoise.captures.photograph import keep_photograph
from equipoise.errors import EquipoiseError
from equipoise.images.png import encode_png, is_plain_png
from equipoise.number_bounds import FiniteNumber
from equipoise.storage.json_decoding import decode_json_bytes
from equipoise.type_aliases import JsonObject

CAPTURE_POOLS = ("drift", "usual")  # in the order in which labels are most useful
KEY_DIGITS = 17  # decimals of a key: enough to distinguish any two float64 from 0.1 to 1
STALE_CAPTURE_SECONDS = 3600.0  # age at which half a capture is a leftover, not one being written
CAPTURE_ID_PATTERN = re.compile("[0-9a-f]{16}")
FILE_STEM_PATTERN = r"(drift|usual)-([01]\.[0-9]{17})-([0-9a-f]{16})"
METADATA_FILE_PATTERN = re.compile(rf"{FILE_STEM_PATTERN}(-labelled)?\.json")
IMAGE_FILE_PATTERN = re.compile(rf"{FILE_STEM_PATTERN}(-labelled)?\.png")
LEFTOVER_FILE_PATTERN = re.compile(rf"\.?{FILE_STEM_PATTERN}\.(?:png|json|held)(?:\.[0-9]+)?")


@dataclass(frozen=True, kw_only=True)
class CapturedRequest:
    """Request as the model answered it."""

    picture: ArrayLike
    """the model's input: uint8 (channels, height, width) of 1 or 3 channels, not on a GPU"""
    model: str
    version: str
    label: str
    """predicted class"""
    scores: Mapping[str, float]
    """calibrated probability of each class"""
    source: str | None = None
    """where the request came from, if its X-Source header says so"""
    pool: str = "usual"
    """'drift' for a request answered while the verdict was drift, 'usual' for any other"""
    is_uniform: bool = False
    """whether it belongs to a sample in which every request has the same chance"""
    encoded: bytes | None = None
    """the image as the client sent it"""
    boxes: tuple[FoundBox, ...] | None = None
    """boxes that a detector found in it, in pixels of `picture`; None for models that find none"""

    def __post_init__(self) -> None:
        values = np.asarray(self.picture)
        if values.dtype != np.uint8 or values.ndim != 3 or values.shape[0] not in (1, 3) or not values.size:
            raise ValueError(
                f"a captured image must be uint8 (1 or 3 channels, height, width), got {values.dtype} {values.shape}"
            )
        if self.pool not in CAPTURE_POOLS:
            raise ValueError(f"unknown capture pool {self.pool!r}; choose one of: {', '.join(CAPTURE_POOLS)}")
        if self.label not in self.scores or not math.isfinite(sum(self.scores.values())):
            raise EquipoiseError(
                "capture-invalid",
                f"the scores of a capture must be finite and include one for its label {self.label!r}",
            )

    @property
    def score(self) -> float:
        """Calibrated probability of the predicted class."""
        return float(self.scores[self.label])

    def encode_image(self) -> tuple[bytes, tuple[FoundBox, ...] | None]:
        """Return the image to be kept as PNG, and the boxes in its pixels.

        It is kept as it was sent, if that is a PNG of these very pixels and nothing else.
        """
        pixels = np.asarray(self.picture)
        if self.encoded is not None and self.boxes is not None and not self.is_uniform:
            return keep_photograph(self.encoded, self.boxes, pixels.shape[-1])
        if self.encoded is not None and is_plain_png(self.encoded, pixels.shape):
            return self.encoded, self.boxes
        return encode_png(pixels), self.boxes

    @property
    def weight(self) -> float:
        """Sampling weight: 1 for a certain prediction, up to 5 for an uncertain one; 1 in a uniform sample."""
        return 1.0 if self.is_uniform else 1 + 4 * max(0.0, 1 - self.score)


class CaptureName(NamedTuple):
    """Pool, key, id and labelling state of a capture, as encoded in its file names."""

    pool: str
    key: float
    id: str
    labelled: bool

    @property
    def unix_seconds(self) -> int:
        """Second in which the request was captured, which its id begins with."""
        return int(self.id[:8], 16)

    @property
    def stem(self) -> str:
        """Common file name of the PNG and the JSON, without suffix."""
        return f"{self.pool}-{self.key:.{KEY_DIGITS}f}-{self.id}" + "-labelled" * self.labelled


def new_capture_id() -> str:
    """Return a new id: the current second and 32 random bits, 8 hexadecimal digits each."""
    return f"{int(time.time()):08x}{secrets.token_hex(4)}"


def is_stale_file(file_name: str) -> bool:
    """Return whether a file is half of a capture older than an hour, whose writing or removal was killed."""
    match = LEFTOVER_FILE_PATTERN.fullmatch(file_name)
    return match is not None and int(match[3][:8], 16) < time.time() - STALE_CAPTURE_SECONDS


@dataclass(frozen=True, kw_only=True)
class CaptureMetadata:
    """Metadata of a capture: how the model answered the request, and the label that a person gave it."""

    id: str
    """16 hexadecimal digits, also in the names of its files"""
    at: FiniteNumber
    """when it was captured, in seconds since 1970"""
    model: str
    """name of the model"""
    version: str
    """version of the bundle that answered"""
    label: str
    """predicted class"""
    score: FiniteNumber
    """calibrated probability of the predicted class"""
    scores: dict[str, FiniteNumber]
    """calibrated probability of each class"""
    source: str | None
    """where the request came from, if it says so"""
    pool: str
    """`drift` for a request answered while the verdict was drift, `usual` for any other"""
    key: FiniteNumber
    """key of the weighted reservoir: the largest ones are kept"""
    label_given: str | None
    """true class, as given by a person; None before that"""
    boxes: tuple[FoundBox, ...] | None = None
    """boxes that a detector found in it, in pixels of the image; left out of the file of other models"""

    @classmethod
    def from_request(
        cls, request: CapturedRequest, name: CaptureName, boxes: tuple[FoundBox, ...] | None = None
    ) -> Self:
        """Build the metadata of a new capture, which has no label yet; `boxes` are in pixels of its image."""
        return cls(
            id=name.id,
            at=time.time(),
            model=request.model,
            version=request.version,
            label=request.label,
            score=request.score,
            scores={class_name: float(score) for class_name, score in request.scores.items()},
            source=request.source,
            pool=name.pool,
            key=name.key,
            label_given=None,
            boxes=boxes,
        )

    def to_json(self) -> JsonObject:
        """Return the metadata as in the file of a capture and in replies of a service."""
        contents: JsonObject = msgspec.to_builtins(self)
        if self.boxes is None:
            contents.pop("boxes", None)  # it is not there where it was not in the file
        return contents

    def to_json_bytes(self) -> bytes:
        """Encode the metadata as standard JSON, which has no NaN or infinity."""
        return (json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n").encode()

    def belongs_to(self, name: CaptureName) -> bool:
        """Return whether this is the metadata of the capture with a name."""
        labelled = self.label_given is not None
        return (self.pool, self.key, self.id, labelled) == (name.pool, name.key, name.id, name.labelled)


def parse_metadata(name: CaptureName, content: bytes | None) -> CaptureMetadata | None:
    """Return the metadata of a capture, or None if its JSON is missing, damaged or belongs to another capture."""
    try:
        metadata = decode_json_bytes(
            content or b"", CaptureMetadata, code="capture-missing", problem=f"cannot read capture {name.id}"
        )
    except EquipoiseError:
        return None
    return metadata if metadata.belongs_to(name) else None


def labelling_priority(name: CaptureName) -> tuple[bool, int, float]:
    """Return a sort key that puts the captures most useful to label first."""
    return name.labelled, CAPTURE_POOLS.index(name.pool), -name.key
