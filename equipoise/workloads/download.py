"""Published data sets: downloaded once into the data folder, or an error that says where to place the files."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError


def load_torchvision_dataset(name: str, root: Path, files: Sequence[str]) -> tuple[Any, Any]:
    """Load the training and test set of a torchvision data set from `root`, downloading it if it is missing."""
    dataset = getattr(importlib.import_module("torchvision.datasets"), name)  # slow to import: only when needed
    try:
        return dataset(root, train=True), dataset(root, train=False)
    except RuntimeError:
        pass  # torchvision raises this if the files are missing
    try:
        return dataset(root, train=True, download=True), dataset(root, train=False, download=True)
    except (OSError, RuntimeError) as error:  # no network, a failed mirror, a damaged file
        expected = ", ".join(str(root.absolute() / file) for file in files)
        raise EquipoiseError(
            "dataset-unavailable",
            f"cannot load {name}: it is not in {root} and could not be downloaded ({' '.join(str(error).split())})",
            f"give its folder with --data, or place these files: {expected}",
        ) from error


def resize_images(images: Tensor, size: int) -> Tensor:
    """Resize square uint8 images to `size` pixels per side."""
    if images.shape[-1] == size:
        return images
    return F.interpolate(images.float(), size, mode="bilinear", antialias=True).round().to(images.dtype)
