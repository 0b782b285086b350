"""One request kept for labelling, as two files: its picture, and what is known of it."""

import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

CAPTURE_POOLS = ("drift", "usual")  # the more useful to label first
KEY_DIGITS = 17  # of a key: as many as tell any two floats below 1 apart
STALE_CAPTURE_SECONDS = 3600.0  # seconds after which half a capture is no longer one being written
CAPTURE_ID_PATTERN = re.compile("[0-9a-f]{16}")
FILE_STEM_PATTERN = r"(drift|usual)-([01]\.[0-9]{17})-([0-9a-f]{16})"
METADATA_FILE_PATTERN = re.compile(rf"{FILE_STEM_PATTERN}(-labelled)?\.json")
LEFTOVER_FILE_PATTERN = re.compile(rf"\.?{FILE_STEM_PATTERN}\.(?:png|json)(?:\.[0-9]+)?")
TEXT_FIELD_TYPES = {"model": str, "version": str, "label": str, "source": str | None, "label_given": str | None}


@dataclass(frozen=True, kw_only=True)
class CapturedRequest:
    """A request as it was answered."""

    picture: ArrayLike
    """uint8 (channels, height, width) of 1 or 3 channels, not on a GPU: as the model took it"""
    model: str
    version: str
    label: str
    """the class predicted"""
    scores: Mapping[str, float]
    """calibrated probability of each class"""
    source: str | None = None
    pool: str = "usual"
    """drift: answered while a verdict said drift; usual: any other"""
    extra_weight: float = 0.0
    """added to the weight: how much more a label would help than the score tells"""

    def __post_init__(self) -> None:
        values = np.asarray(self.picture)
        if values.dtype != np.uint8 or values.ndim != 3 or values.shape[0] not in (1, 3) or not values.size:
            found = f"{values.dtype} {values.shape}"
            raise ValueError(f"a capture is a uint8 picture (1 or 3 channels, height, width), got {found}")
        if self.pool not in CAPTURE_POOLS:
            raise ValueError(f"there is no pool {self.pool!r}; there are: {', '.join(CAPTURE_POOLS)}")
        if self.label not in self.scores or not math.isfinite(sum(self.scores.values())):
            raise ValueError(f"the scores of a capture must be finite, with one for its label {self.label!r}")
        if not 0 <= self.extra_weight < math.inf:
            raise ValueError(f"useful must be a finite number from 0, got {self.extra_weight}")

    @property
    def score(self) -> float:
        """Calibrated probability of the class predicted."""
        return float(self.scores[self.label])

    @property
    def weight(self) -> float:
        """How useful a label would be: from 1, of an answer that is certain, to 5 and what was added."""
        return 1 + 4 * max(0.0, 1 - self.score) + self.extra_weight


class CaptureName(NamedTuple):
    """What the name of a capture's files tells of it."""

    pool: str
    key: float
    id: str
    labelled: bool

    @property
    def stem(self) -> str:
        """Of both its files."""
        return f"{self.pool}-{self.key:.{KEY_DIGITS}f}-{self.id}" + "-labelled" * self.labelled


def new_capture_id() -> str:
    """The second in which it was drawn, and chance: both in hexadecimal digits."""
    return f"{int(time.time()):08x}{secrets.token_hex(4)}"


def is_stale_file(file_name: str) -> bool:
    """Whether a file is half of a capture whose writing or removal ended long ago, by a kill."""
    found = LEFTOVER_FILE_PATTERN.fullmatch(file_name)
    return found is not None and int(found[3][:8], 16) < time.time() - STALE_CAPTURE_SECONDS


def capture_metadata(request: CapturedRequest, name: CaptureName) -> dict[str, Any]:
    """What is known of a capture before it is labelled."""
    return {
        "id": name.id,
        "at": time.time(),
        "model": request.model,
        "version": request.version,
        "label": request.label,
        "score": request.score,
        "scores": {one: float(score) for one, score in request.scores.items()},
        "source": request.source,
        "pool": name.pool,
        "key": name.key,
        "label_given": None,
    }


def encode_metadata(metadata: dict[str, Any]) -> bytes:
    """As JSON that any reader takes."""
    return (json.dumps(metadata, indent=1, allow_nan=False) + "\n").encode()


def parse_metadata(name: CaptureName, content: bytes | None) -> dict[str, Any] | None:
    """What is known of a capture, or None if its JSON is damaged or another's."""
    try:
        facts = json.loads(content or b"")
        same = (facts["id"], facts["pool"], facts["key"]) == (name.id, name.pool, name.key)
        texts = all(isinstance(facts[one], kind) for one, kind in TEXT_FIELD_TYPES.items())
        finite = math.isfinite(sum([facts["at"], facts["score"], *facts["scores"].values()]))
        labelled = (facts["label_given"] is not None) == name.labelled
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return facts if same and texts and finite and labelled else None


def labelling_priority(name: CaptureName) -> tuple[bool, int, float]:
    """Sorts what is best labelled first to the front."""
    return name.labelled, CAPTURE_POOLS.index(name.pool), -name.key
