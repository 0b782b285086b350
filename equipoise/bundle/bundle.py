"""A published model as a folder, which answers pictures without the code that trained it.

Every byte is accounted for: bundle.json holds the digest of each file, and one of itself. A folder that is not whole,
not ours or changed since is refused in a sentence. What is read from it is JSON, safetensors, ONNX and NumPy arrays,
none of which run anything their writer chose.
"""

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import ENGINES, PROGRAM, WEIGHTS
from equipoise.images.decode import MODES, UNREADABLE, read
from equipoise.storage import atomic as store

SCHEMA = 1
MOST_SIDE, MOST_CHANNELS = 2048, 4
MOST_REFERENCE = 1 << 30  # bytes, unpacked
FACTS, REFERENCE, CARD = "bundle.json", "reference.npz", "card.md"
NEEDED = {PROGRAM, WEIGHTS, REFERENCE, CARD}
KINDS: dict[str, type] = {
    "name": str,
    "workload": str,
    "classes": list,
    "input": dict,
    "engine": dict,
    "metrics": dict,
    "files": dict,
}
"""what bundle.json must hold for a bundle to be loaded"""


@dataclass(frozen=True)
class Answer:
    """What a model says of pictures."""

    labels: list[str]
    scores: Tensor
    """calibrated probabilities: one row a picture, which adds up to 1"""
    features: Tensor
    """what the classifier saw: the penultimate layer"""


class Bundle:
    """A published model, ready to answer."""

    def __init__(self, folder: Path, engine: str | None = None) -> None:
        """Refuses what is not a whole bundle; `engine` is for comparisons, its own is the fastest."""
        self.folder = folder
        self.facts = checked(folder)
        self.name: str = self.facts["name"]
        self.version: str = self.facts["digest"][:12]
        self.classes: list[str] = self.facts["classes"]
        self.shape = shape_of(self.facts)
        self.temperature = temperature_of(self.facts)
        self.engine = engine or self.facts["engine"].get("name")
        if not isinstance(self.engine, str) or self.engine not in ENGINES:
            raise ValueError(f"{folder} asks for the engine {self.engine!r}; there are: {', '.join(ENGINES)}")
        try:
            self.run = ENGINES[self.engine](folder)
            for count in (1, 2):
                require_answer(*self.run(torch.zeros(count, *self.shape, dtype=torch.uint8)), count, len(self.classes))
        except Exception as error:  # whatever an engine raises of a program that its facts do not fit
            reason = next(iter(str(error).strip().splitlines()), "")
            raise ValueError(f"{folder} does not run ({type(error).__name__}: {reason}): publish again") from error

    def answer(self, pictures: Tensor) -> Answer:
        """Labels, scores and features of uint8 pictures (n, channels, height, width)."""
        wanted = f"{self.name} takes a batch of uint8 pictures (n, {', '.join(map(str, self.shape))})"
        if not isinstance(pictures, Tensor):
            raise ValueError(f"{wanted}, got {type(pictures).__name__}: make it with `pictures`")
        if pictures.dtype != torch.uint8 or tuple(pictures.shape[1:]) != self.shape or pictures.ndim != 4:
            raise ValueError(f"{wanted}, got {pictures.dtype} {tuple(pictures.shape)}")
        logits, features = self.run(pictures)
        labels = [self.classes[place] for place in logits.argmax(1).tolist()]
        return Answer(labels, self.scores(logits), features)

    def scores(self, logits: Tensor) -> Tensor:
        """Probabilities that are as often right as they say: divided by the temperature found on validation."""
        return torch.softmax(logits / self.temperature, 1)

    def pictures(self, sources: Sequence[str | Path | bytes]) -> Tensor:
        """Photographs, by their paths or as bytes, as the pictures that `answer` takes."""
        if self.shape[0] not in MODES:
            raise ValueError(f"{self.name} takes {self.shape[0]} channels, and photographs have 1 or 3: give tensors")
        if isinstance(sources, str | Path | bytes):
            raise ValueError(f"give {self.name} a list of pictures, not one {type(sources).__name__}")
        made = torch.empty(len(sources), *self.shape, dtype=torch.uint8)
        for place, source in enumerate(sources):
            try:
                made[place] = read(io.BytesIO(source) if isinstance(source, bytes) else Path(source), self.shape)
            except UNREADABLE as error:
                name = f"picture {place}" if isinstance(source, bytes) else str(source)
                raise ValueError(f"{name} cannot be read ({error}): give PNG, JPEG, WebP or the like") from None
        return made

    def reference(self) -> dict[str, NDArray[Any]]:
        """What the model said of the pictures kept for comparison."""
        path = self.folder / REFERENCE
        try:
            with zipfile.ZipFile(path) as whole:
                if sum(member.file_size for member in whole.infolist()) > MOST_REFERENCE:
                    raise ValueError(f"it unpacks to more than {MOST_REFERENCE} bytes")
            with np.load(path, allow_pickle=False) as held:
                return dict(held)
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read ({error}): publish again") from None


def load(path: str | Path, engine: str | None = None) -> Bundle:
    """The bundle in a folder, on this disk or behind a URL such as s3://bucket/vending."""
    return Bundle(store.local(path), engine)


def shape_of(facts: dict[str, Any]) -> tuple[int, ...]:
    """Channels, height and width of the pictures it takes."""
    shape = tuple(facts["input"].get(side) for side in ("channels", "height", "width"))
    most = (MOST_CHANNELS, MOST_SIDE, MOST_SIDE)
    if not all(type(side) is int and 1 <= side <= end for side, end in zip(shape, most, strict=True)):
        raise ValueError(f"{FACTS} asks for pictures of {shape}: each side must be from 1 to its most, {most}")
    return shape


def temperature_of(facts: dict[str, Any]) -> float:
    """By what scores are divided before softmax."""
    found = facts["metrics"].get("temperature")
    if not isinstance(found, int | float) or not 0 < found < math.inf:
        raise ValueError(f"{FACTS} has a temperature of {found!r}: it must be a number above 0")
    return float(found)


def require_answer(logits: Any, features: Any, count: int, classes: int) -> None:
    """Refuse what is no answer to `count` pictures."""
    for name, value, width in (("scores", logits, classes), ("features", features, None)):
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim != 2:
            raise ValueError(f"its {name} are no table of numbers")
        if len(value) != count or (width is not None and value.shape[1] != width):
            raise ValueError(f"it answers {count} pictures with {name} of {tuple(value.shape)} for {classes} classes")
        if not torch.isfinite(value).all():
            raise ValueError(f"its {name} are not finite")


def checked(folder: Path) -> dict[str, Any]:
    """The facts of a bundle whose every file is as it was published."""
    try:
        there = (folder / FACTS).is_file()
    except OSError as error:  # a name that no file system takes
        raise ValueError(f"{str(folder)[:80]} is not a bundle ({error.strerror})") from None
    if not there:
        raise ValueError(f"{folder} is not a bundle: it has no {FACTS}; publish one with jobs.publish")
    facts = store.read_json(folder / FACTS)
    if not isinstance(facts, dict) or "schema" not in facts:
        raise ValueError(f"{folder / FACTS} is not a bundle's: it names no schema")
    if facts["schema"] != SCHEMA:
        raise ValueError(f"{folder} was written in schema {facts['schema']!r}, and this version reads {SCHEMA}")
    if facts.get("digest") != digest(facts):
        raise ValueError(f"{folder / FACTS} was changed since it was published: publish again")
    for name, kind in KINDS.items():
        if not isinstance(facts.get(name), kind):
            raise ValueError(f"{folder / FACTS} lacks {name}, or has it in another form")
    if not all(isinstance(name, str) for name in facts["classes"]) or len(set(facts["classes"])) < len(
        facts["classes"]
    ):
        raise ValueError(f"{folder / FACTS} names classes that are no texts, or one twice: publish again")
    if strange := {path.name for path in folder.iterdir()} - facts["files"].keys() - {FACTS}:
        raise ValueError(f"{folder} holds what was not published with it, {min(strange)}: take that away")
    if missing := NEEDED - facts["files"].keys():
        raise ValueError(f"{folder} lacks {', '.join(sorted(missing))}: publish again")
    for name, expected in facts["files"].items():
        require_file(folder, name, expected)
    return facts


def require_file(folder: Path, name: str, expected: str) -> None:
    """Refuse a file that is missing, elsewhere or changed."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{folder} names a file outside of itself, {name!r}")
    if (folder / name).is_symlink():
        raise ValueError(f"{folder / name} is a link: copy the bundle whole")
    if not (folder / name).is_file():
        raise ValueError(f"{folder} lacks {name}: copy the bundle whole, or publish again")
    if sha256(folder / name) != expected:
        raise ValueError(f"{folder / name} was changed since it was published: copy it again, or publish again")


def digest(facts: Mapping[str, Any]) -> str:
    """One number for all facts, and by them for all files."""
    text = json.dumps({name: value for name, value in facts.items() if name != "digest"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(folder: Path, facts: dict[str, Any]) -> None:
    """Write bundle.json over the files that are there."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    whole = {"schema": SCHEMA, **facts, "files": files}
    store.write_json(folder / FACTS, whole | {"digest": digest(whole)})
