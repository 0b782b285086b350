"""A published model as a folder, which answers pictures without the code that trained it.

What is read from it is JSON, safetensors, ONNX and NumPy arrays, none of which run anything their writer chose.
"""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import ENGINES
from equipoise.bundle.manifest import REFERENCE_FILE, parse_input_shape, parse_temperature, verify_bundle
from equipoise.images.decode import PILLOW_MODES, load_image
from equipoise.images.png import PILLOW_ERRORS
from equipoise.storage.atomic import download_folder

MAX_REFERENCE_BYTES = 1 << 30  # bytes, unpacked


@dataclass(frozen=True)
class Prediction:
    """What a model says of pictures."""

    labels: list[str]
    scores: Tensor
    """calibrated probabilities: one row a picture, which adds up to 1"""
    features: Tensor
    """what the classifier saw: the penultimate layer"""


class Bundle:
    """A published model, ready to answer."""

    def __init__(self, folder: Path, engine_name: str | None = None) -> None:
        """Refuses what is not a whole bundle; `engine` is for comparisons, its own is the fastest."""
        self.folder = folder
        self.manifest = verify_bundle(folder)
        self.name: str = self.manifest["name"]
        self.version: str = self.manifest["digest"][:12]
        self.classes: list[str] = self.manifest["classes"]
        self.shape = parse_input_shape(self.manifest)
        self.temperature = parse_temperature(self.manifest)
        self.engine_name = engine_name or self.manifest["engine"].get("name")
        if not isinstance(self.engine_name, str) or self.engine_name not in ENGINES:
            raise ValueError(f"{folder} asks for the engine {self.engine_name!r}; there are: {', '.join(ENGINES)}")
        try:
            self.run_engine = ENGINES[self.engine_name](folder)
            for count in (1, 2):
                validate_output(
                    *self.run_engine(torch.zeros(count, *self.shape, dtype=torch.uint8)), count, len(self.classes)
                )
        except Exception as error:  # whatever an engine raises of a program that its facts do not fit
            reason = next(iter(str(error).strip().splitlines()), "")
            raise ValueError(f"{folder} does not run ({type(error).__name__}: {reason}): publish again") from error

    def predict(self, pictures: Tensor) -> Prediction:
        """Labels, scores and features of uint8 pictures (n, channels, height, width)."""
        wanted = f"{self.name} takes a batch of uint8 pictures (n, {', '.join(map(str, self.shape))})"
        if not isinstance(pictures, Tensor):
            raise ValueError(f"{wanted}, got {type(pictures).__name__}: make it with `pictures`")
        if pictures.dtype != torch.uint8 or tuple(pictures.shape[1:]) != self.shape or pictures.ndim != 4:
            raise ValueError(f"{wanted}, got {pictures.dtype} {tuple(pictures.shape)}")
        logits, features = self.run_engine(pictures)
        labels = [self.classes[place] for place in logits.argmax(1).tolist()]
        return Prediction(labels, self.probabilities(logits), features)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities that are as often right as they say: divided by the temperature found on validation."""
        return torch.softmax(logits / self.temperature, 1)

    def preprocess(self, sources: Sequence[str | Path | bytes]) -> Tensor:
        """Photographs, by their paths or as bytes, as the pictures that `answer` takes."""
        if self.shape[0] not in PILLOW_MODES:
            raise ValueError(f"{self.name} takes {self.shape[0]} channels, and photographs have 1 or 3: give tensors")
        if isinstance(sources, str | Path | bytes):
            raise ValueError(f"give {self.name} a list of pictures, not one {type(sources).__name__}")
        made = torch.empty(len(sources), *self.shape, dtype=torch.uint8)
        for place, source in enumerate(sources):
            try:
                made[place] = load_image(io.BytesIO(source) if isinstance(source, bytes) else Path(source), self.shape)
            except PILLOW_ERRORS as error:
                name = f"picture {place}" if isinstance(source, bytes) else str(source)
                raise ValueError(f"{name} cannot be read ({error}): give PNG, JPEG, WebP or the like") from None
        return made

    def load_reference_arrays(self) -> dict[str, NDArray[Any]]:
        """What the model said of the pictures kept for comparison."""
        path = self.folder / REFERENCE_FILE
        try:
            with zipfile.ZipFile(path) as whole:
                if sum(member.file_size for member in whole.infolist()) > MAX_REFERENCE_BYTES:
                    raise ValueError(f"it unpacks to more than {MAX_REFERENCE_BYTES} bytes")
            with np.load(path, allow_pickle=False) as held:
                return dict(held)
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read ({error}): publish again") from None


def load_bundle(path: str | Path, engine_name: str | None = None) -> Bundle:
    """The bundle in a folder, on this disk or behind a URL such as s3://bucket/vending."""
    return Bundle(download_folder(path), engine_name)


def validate_output(logits: Any, features: Any, image_count: int, class_count: int) -> None:
    """Refuse what is no answer to `count` pictures."""
    for name, value, width in (("scores", logits, class_count), ("features", features, None)):
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim != 2:
            raise ValueError(f"its {name} are no table of numbers")
        if len(value) != image_count or (width is not None and value.shape[1] != width):
            raise ValueError(
                f"it answers {image_count} pictures with {name} of {tuple(value.shape)} for {class_count} classes"
            )
        if not torch.isfinite(value).all():
            raise ValueError(f"its {name} are not finite")
