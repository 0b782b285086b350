"""Published model of labelled images."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.kinds.base_bundle import Bundle
from equipoise.bundle.kinds.predictions import Prediction, calibrate_scores, name_best_classes
from equipoise.bundle.manifest import Manifest
from equipoise.errors import EquipoiseError
from equipoise.images.decode import load_image
from equipoise.images.png import PILLOW_ERRORS, PILLOW_MODES


class ImageBundle(Bundle):
    """Published model of labelled images.

    Attributes:
        shape: channels, height and width of the images that the model takes
        temperature: divisor of the logits that makes the scores calibrated
    """

    def __init__(self, folder: Path, manifest: Manifest, engine_name: str | None = None) -> None:
        """Load the verified bundle in `folder`; refuse one that does not run.

        `engine_name` overrides the engine chosen at publication (the fastest), for comparisons.
        """
        self.shape, self.temperature = manifest.image_input.shape, manifest.classification.temperature
        super().__init__(folder, manifest, engine_name)

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
        return Prediction(name_best_classes(self.classes, logits), self.probabilities(logits), features)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return calibrated probabilities: softmax of the logits over the temperature fitted on validation."""
        return calibrate_scores(logits, self.temperature)

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

    def select_input_arrays(self, arrays: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the array of reference.npz that holds images, which pages show too."""
        return [arrays["pictures"]]
