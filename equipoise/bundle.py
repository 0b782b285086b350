"""A published model as a folder, which answers pictures without the code that trained it.

Every byte is accounted for: bundle.json holds the digest of each file, and one of itself. A folder that is not whole,
not ours or changed since is refused in a sentence. What is read from it is JSON, safetensors, ONNX and NumPy arrays,
none of which run anything their writer chose.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise import store
from equipoise.engines import ENGINES, PROGRAM, WEIGHTS
from equipoise.picture import MODES, UNREADABLE, read

SCHEMA = 1
MOST_PIXELS = 2048  # a side
FACTS, REFERENCE, CARD = "bundle.json", "reference.npz", "card.md"
NEEDED = {PROGRAM, WEIGHTS, REFERENCE, CARD}
KINDS: dict[str, type] = {"name": str, "workload": str, "classes": list, "input": dict, "engine": dict, "files": dict}
"""what bundle.json must hold for a bundle to be loaded"""


@dataclass(frozen=True)
class Answer:
    """What a model says of pictures."""

    labels: list[str]
    scores: Tensor
    """one row a picture, which adds up to 1"""
    features: Tensor
    """what the classifier saw: the penultimate layer"""


class Bundle:
    """A published model, ready to answer."""

    def __init__(self, folder: Path, engine: str | None = None) -> None:
        """Refuses what is not a whole bundle; `engine` is for comparisons, its own is the fastest."""
        self.folder = folder
        self.facts = checked(folder)
        self.name: str = self.facts["name"]
        self.classes: list[str] = self.facts["classes"]
        self.shape = shape_of(self.facts)
        self.engine = engine or self.facts["engine"].get("name")
        if self.engine not in ENGINES:
            raise ValueError(f"{folder} asks for the engine {self.engine!r}; there are: {', '.join(ENGINES)}")
        try:
            self.run = ENGINES[self.engine](folder)
            logits, _ = self.run(torch.zeros(1, *self.shape, dtype=torch.uint8))
        except Exception as error:  # whatever an engine raises of a program that its facts do not fit
            reason = next(iter(str(error).strip().splitlines()), "")
            raise ValueError(f"{folder} does not run ({type(error).__name__}: {reason}): publish again") from error
        if logits.shape != (1, len(self.classes)):
            raise ValueError(f"{folder} answers with {logits.shape[1:]} scores for {len(self.classes)} classes")

    def answer(self, pictures: Tensor) -> Answer:
        """Labels, scores and features of uint8 pictures (n, channels, height, width)."""
        if pictures.dtype != torch.uint8 or tuple(pictures.shape[1:]) != self.shape or pictures.ndim != 4:
            raise ValueError(
                f"{self.name} takes uint8 pictures of {'x'.join(map(str, self.shape))}, "
                f"got {pictures.dtype} of {'x'.join(map(str, pictures.shape[1:]))}"
            )
        logits, features = self.run(pictures)
        labels = [self.classes[place] for place in logits.argmax(1).tolist()]
        return Answer(labels, torch.softmax(logits, 1), features)

    def pictures(self, sources: Sequence[str | Path | bytes]) -> Tensor:
        """Photographs, by their paths or as bytes, as the pictures that `answer` takes."""
        if self.shape[0] not in MODES:
            raise ValueError(f"{self.name} takes {self.shape[0]} channels, and photographs have 1 or 3: give tensors")
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
        with np.load(self.folder / REFERENCE, allow_pickle=False) as held:
            return dict(held)


def load(path: str | Path, engine: str | None = None) -> Bundle:
    """The bundle in a folder, on this disk or behind a URL such as s3://bucket/vending."""
    return Bundle(store.local(path), engine)


def shape_of(facts: dict[str, Any]) -> tuple[int, ...]:
    """Channels, height and width of the pictures it takes."""
    shape = tuple(facts["input"].get(side) for side in ("channels", "height", "width"))
    if not all(isinstance(side, int) and 1 <= side <= MOST_PIXELS for side in shape):
        raise ValueError(f"{FACTS} asks for pictures of {shape}: each must be from 1 to {MOST_PIXELS}")
    return shape


def checked(folder: Path) -> dict[str, Any]:
    """The facts of a bundle whose every file is as it was published."""
    if not (folder / FACTS).is_file():
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
    if missing := NEEDED - facts["files"].keys():
        raise ValueError(f"{folder} lacks {', '.join(sorted(missing))}: publish again")
    for name, expected in facts["files"].items():
        require_file(folder, name, expected)
    return facts


def require_file(folder: Path, name: str, expected: str) -> None:
    """Refuse a file that is missing, elsewhere or changed."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{folder} names a file outside of itself, {name!r}")
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


@contextmanager
def writing(out: Path) -> Iterator[Path]:
    """A folder to fill beside `out`: it takes that name once all is in it, and goes if anything is raised."""
    if out.exists():
        raise ValueError(f"{out} exists already: give another --out, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    finally:
        rmtree(temporary, ignore_errors=True)


def sealed(folder: Path, facts: dict[str, Any]) -> None:
    """Write bundle.json over the files that are there."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    whole = {"schema": SCHEMA, **facts, "files": files}
    store.write_json(folder / FACTS, whole | {"digest": digest(whole)})
