"""Workload folder: your own photographs, one folder per class, any size, any format that Pillow reads."""

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment
from equipoise.images.decode import load_image
from equipoise.images.orientation import list_image_files
from equipoise.images.png import PILLOW_ERRORS
from equipoise.storage.node_cache import fetch_data
from equipoise.storage.object_store import parse_location
from equipoise.workloads.base import Split, select_split, stratified_split
from equipoise.workloads.free_memory import find_free_memory
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.models import IMAGENET_MEAN, IMAGENET_STD, model_factory

MAX_IN_MEMORY_BYTES = 2 << 30  # decoded size; larger folders are read while training
COPIES_IN_MEMORY = 4  # of the decoded images in each worker: three while they are split (measured), and a margin

logger = logging.getLogger(__name__)  # commands configure no handler: Python then prints warnings to stderr as they are


def image_folder(config: TrainConfig) -> ImageWorkload:
    """Build the workload of --data, whose folders are the classes; report corrupt images and leave them out."""
    root, size = fetch_data(config.data), config.image_size or 64
    classes, paths, labels = find_labelled_images(root, config.data)
    readable, pictures = read_images(paths, size, config.workers)
    warn_unreadable([path for path, is_readable in zip(paths, readable, strict=True) if not is_readable], len(paths))
    labels = labels[readable]
    require_examples_per_class(config.data, classes, labels)
    label_tensor = torch.from_numpy(labels)
    parts = stratified_split(labels, (0.15, 0.1, 0.15))
    train, validation, reference, test = (
        select_split(pictures, label_tensor, part)
        if isinstance(pictures, Tensor)
        else Split(LazyImages([pictures[i] for i in part], size), label_tensor[torch.from_numpy(part)])
        for part in parts
    )
    return ImageWorkload(
        name=folder_name(parse_location(config.data)),
        classes=classes,
        train=train,
        validation=validation,
        reference=reference,
        test=test,
        model=model_factory(config.model or "resnet18", num_classes=len(classes), in_channels=3, image_size=size),
        target=0.9,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augment=Augment(shift=size // 16, flip=True),
    )


def folder_name(root: Path) -> str:
    """Return the name of a folder with only the characters that the name of a served model may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", root.resolve().name).strip("-._")[:100] or "folder"


@dataclass(frozen=True)
class LazyImages:
    """Sequence of photographs decoded on access; a damaged one is reported and replaced by the next."""

    paths: Sequence[Path]
    image_size: int

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        for path in (*self.paths[index:], *self.paths[:index]):
            try:
                return load_image(path, (3, self.image_size, self.image_size))
            except PILLOW_ERRORS as error:
                logger.warning("cannot read %s: %s; using the next image instead", path, error)
        raise EquipoiseError(
            "dataset-invalid", f"cannot read any of {len(self.paths)} images: all are damaged or missing"
        )


def find_labelled_images(root: Path, location: str = "") -> tuple[list[str], list[Path], NDArray[np.int64]]:
    """Return the class names, the path of each image, and the index of its class; messages name `location`, if any."""
    location = location or str(root)
    if not root.is_dir():
        raise EquipoiseError(
            "path-kind", f"--data {location} is not a folder", "give one that holds a folder of images for each class"
        )
    folders = [entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__"))]
    # --init-from torchvision keeps its weights beside the images
    classes = sorted(entry.name for entry in folders if entry.name != "weights" or list_image_files(entry))
    if len(classes) < 2:
        content = f"only one folder ({classes[0]})" if classes else "no folder"
        raise EquipoiseError(
            "dataset-invalid",
            f"--data {location} holds {content}: it needs one folder of images per class, for at least two classes",
        )
    labelled = [(path, label) for label, name in enumerate(classes) for path in list_image_files(root / name)]
    return classes, [path for path, _ in labelled], np.array([label for _, label in labelled], np.int64)


def read_images(paths: Sequence[Path], size: int, workers: int) -> tuple[NDArray[np.bool_], Tensor | list[Path]]:
    """Return which paths are readable, and the images of those; only their paths if memory does not suffice for them.

    Which images are left out depends on the folder alone: workers with more and with less memory agree on the splits.
    """
    decoded_bytes = len(paths) * 3 * size * size
    if decoded_bytes > MAX_IN_MEMORY_BYTES:
        return check_images(paths, has_readable_header)
    if decoded_bytes * COPIES_IN_MEMORY * workers > find_free_memory():
        return check_images(paths, lambda path: try_load_image(path, size) is not None)
    return decode_images(paths, size)


def decode_images(paths: Sequence[Path], size: int) -> tuple[NDArray[np.bool_], Tensor]:
    """Decode images; return which paths are readable, and the images of those."""
    with ThreadPoolExecutor() as pool:
        loaded = list(pool.map(partial(try_load_image, size=size), paths))
    images = [image for image in loaded if image is not None]
    readable = np.array([image is not None for image in loaded], bool)
    return readable, torch.stack(images) if images else torch.empty(0, 3, size, size, dtype=torch.uint8)


def try_load_image(path: Path, size: int) -> Tensor | None:
    """Load an image; None if it is damaged."""
    try:
        return load_image(path, (3, size, size))
    except PILLOW_ERRORS:
        return None


def has_readable_header(path: Path) -> bool:
    """Return whether the header of an image is readable, without decoding it."""
    try:
        with Image.open(path):
            return True
    except PILLOW_ERRORS:
        return False


def check_images(paths: Sequence[Path], is_readable: Callable[[Path], bool]) -> tuple[NDArray[np.bool_], list[Path]]:
    """Return which images are readable, and the paths of those; they are decoded later, on access."""
    with ThreadPoolExecutor() as pool:
        readable = np.array(list(pool.map(is_readable, paths)), bool)
    return readable, [path for path, is_kept in zip(paths, readable, strict=True) if is_kept]


def warn_unreadable(corrupt: Sequence[Path], total: int) -> None:
    """Log a warning that counts and names the images left out."""
    if corrupt:
        names = ", ".join(map(str, corrupt[:5])) + (", ..." if len(corrupt) > 5 else "")
        logger.warning("left out %d of %d images that cannot be read: %s", len(corrupt), total, names)


def require_examples_per_class(location: str, classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse classes with fewer than 8 images, which cannot be split into four parts."""
    counts = np.bincount(labels, minlength=len(classes))
    small = [f"{name} ({count})" for name, count in zip(classes, counts, strict=True) if count < 8]
    if small:
        raise EquipoiseError(
            "dataset-invalid",
            f"--data {location} has classes with fewer than 8 readable images: {', '.join(small)}",
            "add images to them",
        )
