"""Published data sets: downloaded once into the data folder, or a sentence on where to put them."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F


def load_torchvision_dataset(name: str, root: Path, files: Sequence[str]) -> tuple[Any, Any]:
    """torchvision's data set of this name for training and for test, from `root`, downloaded if it is not there."""
    dataset = getattr(importlib.import_module("torchvision.datasets"), name)  # slow to import: only when wanted
    try:
        return dataset(root, train=True), dataset(root, train=False)
    except RuntimeError:
        pass  # not there yet: torchvision says so by this
    try:
        return dataset(root, train=True, download=True), dataset(root, train=False, download=True)
    except (OSError, RuntimeError) as error:  # no network, a failed mirror, a damaged file
        expected = ", ".join(str(root.absolute() / file) for file in files)
        raise ValueError(
            f"{name} is not in {root} and could not be downloaded ({' '.join(str(error).split())}): "
            f"give the folder that has it by --data, or place these files: {expected}"
        ) from error


def resize_images(images: Tensor, size: int) -> Tensor:
    """uint8 pictures brought to `size` pixels a side."""
    if images.shape[-1] == size:
        return images
    return F.interpolate(images.float(), size, mode="bilinear", antialias=True).round().to(images.dtype)
