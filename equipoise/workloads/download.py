"""Published data sets: read or downloaded once, or an error that says where to place the files."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
from equipoise.storage.node_cache import fetch_data, is_url


def load_torchvision_dataset(name: str, location: str, files: Sequence[str]) -> tuple[Any, Any]:
    """Load the training and test set of a torchvision data set, downloading it if it is missing.

    Behind a URL its published files, or what they unpack to, must be there.
    """
    dataset = getattr(importlib.import_module("torchvision.datasets"), name)  # slow to import: only when needed
    root = fetch_data(location, purpose=name, prepare=lambda folder: unpack_files(dataset, folder, files))
    with suppress(RuntimeError):  # torchvision's, if the files are missing
        return dataset(root, train=True), dataset(root, train=False)
    if is_url(location):
        expected = ", ".join(f"{location.rstrip('/')}/{file}" for file in files)
        raise EquipoiseError(
            "dataset-unavailable", f"cannot load {name}: it is not in {location}", f"place these files: {expected}"
        )
    try:
        return dataset(root, train=True, download=True), dataset(root, train=False, download=True)
    except (OSError, RuntimeError) as error:  # no network, a failed mirror, a damaged file
        expected = ", ".join(str(root.absolute() / file) for file in files)
        raise EquipoiseError(
            "dataset-unavailable",
            f"cannot load {name}: it is not in {root} and could not be downloaded ({' '.join(str(error).split())})",
            f"give its folder with --data, or place these files: {expected}",
        ) from error


def unpack_files(dataset: Callable[..., object], root: Path, files: Sequence[str]) -> None:
    """Unpack the published files of a torchvision data set in their folder, if all are there."""
    if not all((root / file).is_file() for file in files):
        return
    try:
        dataset(root, download=True)  # takes the files that are there, if their digests are as published
    except (OSError, RuntimeError) as error:
        raise EquipoiseError(
            "dataset-unavailable",
            f"cannot unpack {', '.join(files)}: damaged, and could not be downloaded ({' '.join(str(error).split())})",
            "place the published files",
        ) from error


def resize_images(images: Tensor, size: int) -> Tensor:
    """Resize square uint8 images to `size` pixels per side."""
    if images.shape[-1] == size:
        return images
    return F.interpolate(images.float(), size, mode="bilinear", antialias=True).round().to(images.dtype)
