"""Your own photographs: one folder a class, any size, any format that Pillow reads."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.images.decode import load_image
from equipoise.images.png import PILLOW_ERRORS
from equipoise.workloads.base import Split, Workload, select_examples, stratified_split
from equipoise.workloads.models import model_factory

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MAX_IN_MEMORY_BYTES = 2 << 30  # decoded; a folder above this is read while training


def image_folder(config: TrainConfig) -> Workload:
    """Classes are the names of the folders in --data. Corrupt pictures are left out, named and counted."""
    root, size = Path(config.data), config.image_size or 64
    classes, paths, labels = find_labelled_images(root)
    streams = len(paths) * 3 * size * size > MAX_IN_MEMORY_BYTES
    readable, pictures = check_headers(paths, size) if streams else decode_images(paths, size)
    warn_unreadable([path for path, good in zip(paths, readable, strict=True) if not good], len(paths))
    labels = labels[readable]
    require_examples_per_class(root, classes, labels)
    known = torch.from_numpy(labels)
    parts = stratified_split(labels, (0.15, 0.1, 0.15))
    train, validation, reference, test = (
        select_examples(pictures, known, part)
        if isinstance(pictures, Tensor)
        else Split(LazyImages([pictures[i] for i in part], size), known[torch.from_numpy(part)])
        for part in parts
    )
    return Workload(
        name="folder",
        classes=classes,
        train=train,
        validation=validation,
        reference=reference,
        test=test,
        model=model_factory(config.model or "resnet18", num_classes=len(classes), in_channels=3, image_size=size),
        target=0.9,
        mean=(0.485, 0.456, 0.406),  # of ImageNet, for photographs in general
        std=(0.229, 0.224, 0.225),
        augment=Augment(shift=size // 16, flip=True),
    )


@dataclass(frozen=True)
class LazyImages:
    """Photographs decoded when they are asked for. One found damaged is replaced by the next, and named."""

    paths: Sequence[Path]
    image_size: int

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        for path in (*self.paths[index:], *self.paths[:index]):
            try:
                return load_image(path, (3, self.image_size, self.image_size))
            except PILLOW_ERRORS as error:
                print(f"cannot read {path} ({error}); the next picture stands in for it", file=sys.stderr)  # noqa: T201
        raise ValueError(f"none of {len(self.paths)} pictures can be read")


def find_labelled_images(root: Path) -> tuple[list[str], list[Path], NDArray[np.int64]]:
    """Class names, every picture's path, and its class's place among the names."""
    if not root.is_dir():
        raise ValueError(f"--data {root} is not a folder: give one that holds a folder of pictures for each class")
    classes = sorted(
        entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__"))
    )
    if len(classes) < 2:
        found = f"one folder only ({classes[0]})" if classes else "no folder"
        raise ValueError(f"--data {root} holds {found}: it needs a folder of pictures for each of two classes or more")
    found_paths = [(path, label) for label, name in enumerate(classes) for path in list_image_files(root / name)]
    return classes, [path for path, _ in found_paths], np.array([label for _, label in found_paths], np.int64)


def list_image_files(folder: Path) -> list[Path]:
    """Pictures below a folder, by name."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def decode_images(paths: Sequence[Path], size: int) -> tuple[NDArray[np.bool_], Tensor]:
    """Which pictures can be read, and those pictures."""

    def attempt(path: Path) -> Tensor | None:
        try:
            return load_image(path, (3, size, size))
        except PILLOW_ERRORS:
            return None

    with ThreadPoolExecutor() as pool:
        tried = list(pool.map(attempt, paths))
    good = [picture for picture in tried if picture is not None]
    readable = np.array([picture is not None for picture in tried], bool)
    return readable, torch.stack(good) if good else torch.empty(0, 3, size, size, dtype=torch.uint8)


def check_headers(paths: Sequence[Path], size: int) -> tuple[NDArray[np.bool_], list[Path]]:
    """Which pictures have a readable header, and their paths: decoding waits until they are needed."""

    def opens(path: Path) -> bool:
        try:
            with Image.open(path):
                return True
        except PILLOW_ERRORS:
            return False

    with ThreadPoolExecutor() as pool:
        readable = np.array(list(pool.map(opens, paths)), bool)
    return readable, [path for path, good in zip(paths, readable, strict=True) if good]


def warn_unreadable(corrupt: Sequence[Path], total: int) -> None:
    """Name the pictures left out."""
    if corrupt:
        names = ", ".join(map(str, corrupt[:5])) + (", ..." if len(corrupt) > 5 else "")
        print(f"left out {len(corrupt)} of {total} pictures that cannot be read: {names}", file=sys.stderr)  # noqa: T201


def require_examples_per_class(root: Path, classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse classes too small to be dealt into four parts."""
    counts = np.bincount(labels, minlength=len(classes))
    few = [f"{name} ({count})" for name, count in zip(classes, counts, strict=True) if count < 8]
    if few:
        raise ValueError(f"--data {root} has classes with fewer than 8 readable pictures: {', '.join(few)}: add some")
