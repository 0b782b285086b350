"""A published model as a folder, which predicts the classes of images without the code that trained it.

A bundle holds only JSON, safetensors, ONNX and NumPy arrays: loading it cannot run code that its author chose.
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
from equipoise.bundle.manifest import REFERENCE_FILE, verify_bundle
from equipoise.errors import EquipoiseError
from equipoise.images.decode import PILLOW_MODES, load_image
from equipoise.images.png import PILLOW_ERRORS
from equipoise.storage.atomic import download_folder

MAX_REFERENCE_BYTES = 1 << 30  # after decompression


@dataclass(frozen=True)
class Prediction:
    """Labels, calibrated scores and features that a model predicts for a batch of images."""

    labels: list[str]
    """predicted class of each image"""
    scores: Tensor
    """calibrated class probabilities, (images, classes); each row sums to 1"""
    features: Tensor
    """input of the classification head (penultimate layer), (images, features)"""


class Bundle:
    """Published model, verified and loaded, ready to predict.

    Attributes:
        folder: folder that the bundle was loaded from
        manifest: contents of bundle.json
        name: name of the model
        version: version of the bundle, by which requests and verdicts name it
        classes: class names in the order of the scores
        shape: channels, height and width of the images that the model takes
        temperature: divisor of the logits that makes the scores calibrated
        engine_name: engine that predicts
    """

    def __init__(self, folder: Path, engine_name: str | None = None) -> None:
        """Verify and load the bundle in `folder`; refuse one that is incomplete, changed or does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        self.folder = folder
        self.manifest = verify_bundle(folder)
        self.name, self.version, self.classes = self.manifest.name, self.manifest.version, self.manifest.classes
        self.shape, self.temperature = self.manifest.input.shape, self.manifest.metrics.temperature
        self.engine_name = engine_name or self.manifest.engine.name
        if self.engine_name not in ENGINES:
            raise EquipoiseError(
                "engine-unknown",
                f"cannot load {folder}: unknown engine {self.engine_name!r}",
                f"choose one of: {', '.join(ENGINES)}",
            )
        try:
            self.run_engine = ENGINES[self.engine_name](folder)
            for count in (1, 2):
                validate_output(
                    *self.run_engine(torch.zeros(count, *self.shape, dtype=torch.uint8)), count, len(self.classes)
                )
        except Exception as error:  # an engine may raise anything for a program that does not fit the manifest
            kind = "" if isinstance(error, EquipoiseError) else f"{type(error).__name__}: "
            reason = next(iter(str(error).strip().splitlines()), "")
            raise EquipoiseError(
                "bundle-invalid", f"cannot run {folder}: {kind}{reason}", "publish it again"
            ) from error

    def predict(self, pictures: Tensor) -> Prediction:
        """Return labels, scores and features of uint8 images (n, channels, height, width)."""
        expected = f"{self.name} takes a batch of uint8 images (n, {', '.join(map(str, self.shape))})"
        if not isinstance(pictures, Tensor):
            raise EquipoiseError(
                "images-invalid", f"{expected}, got {type(pictures).__name__}", "make a tensor with `preprocess`"
            )
        if pictures.dtype != torch.uint8 or tuple(pictures.shape[1:]) != self.shape or pictures.ndim != 4:
            raise EquipoiseError("images-invalid", f"{expected}, got {pictures.dtype} {tuple(pictures.shape)}")
        logits, features = self.run_engine(pictures)
        labels = [self.classes[index] for index in logits.argmax(1).tolist()]
        return Prediction(labels, self.probabilities(logits), features)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return calibrated probabilities: softmax of the logits over the temperature fitted on validation."""
        return torch.softmax(logits / self.temperature, 1)

    def preprocess(self, sources: Sequence[str | Path | bytes]) -> Tensor:
        """Decode photographs, given as paths or bytes, into the uint8 batch that `predict` takes."""
        if self.shape[0] not in PILLOW_MODES:
            raise EquipoiseError(
                "images-invalid",
                f"cannot decode photographs for {self.name}: it takes {self.shape[0]} channels and photographs have 1 "
                "or 3",
                "give tensors",
            )
        if isinstance(sources, str | Path | bytes):
            raise EquipoiseError(
                "images-invalid",
                f"cannot decode photographs for {self.name}: got one {type(sources).__name__}",
                "give a list",
            )
        images = torch.empty(len(sources), *self.shape, dtype=torch.uint8)
        for index, source in enumerate(sources):
            try:
                file = io.BytesIO(source) if isinstance(source, bytes) else Path(source)
                images[index] = load_image(file, self.shape)
            except PILLOW_ERRORS as error:
                name = f"image {index}" if isinstance(source, bytes) else str(source)
                raise EquipoiseError(
                    "image-undecodable",
                    f"cannot read {name}: {error}",
                    "give PNG, JPEG, WebP or another common format",
                ) from None
        return images

    def load_reference_arrays(self) -> dict[str, NDArray[Any]]:
        """Load the arrays of the reference split: what the model predicted on images kept for comparison."""
        path = self.folder / REFERENCE_FILE
        try:
            with zipfile.ZipFile(path) as archive:
                if sum(member.file_size for member in archive.infolist()) > MAX_REFERENCE_BYTES:
                    raise EquipoiseError("bundle-invalid", f"it decompresses to more than {MAX_REFERENCE_BYTES} bytes")
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
            raise EquipoiseError("bundle-invalid", f"cannot read {path}: {error}", "publish the bundle again") from None


def load_bundle(path: str | Path, engine_name: str | None = None) -> Bundle:
    """Load the bundle in a local folder or behind a URL such as s3://bucket/vending."""
    return Bundle(download_folder(path), engine_name)


def validate_output(logits: Any, features: Any, image_count: int, class_count: int) -> None:
    """Refuse an engine's output unless it is finite scores and features of `image_count` images."""
    for name, value, width in (("scores", logits, class_count), ("features", features, None)):
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.ndim != 2:
            raise EquipoiseError("bundle-invalid", f"its {name} are not a two-dimensional tensor of floats")
        if len(value) != image_count or (width is not None and value.shape[1] != width):
            raise EquipoiseError(
                "bundle-invalid",
                f"for {image_count} images and {class_count} classes it returns {name} of shape {tuple(value.shape)}",
            )
        if not torch.isfinite(value).all():
            raise EquipoiseError("bundle-invalid", f"its {name} are not all finite")
