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

from equipoise.config import Trial
from equipoise.images.augment import Augment
from equipoise.images.decode import read
from equipoise.images.png import UNREADABLE
from equipoise.workloads.base import Split, Workload, dealt, split
from equipoise.workloads.models import model

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
IN_MEMORY_BYTES = 2 << 30  # decoded; a folder above this is read while training


def folder(trial: Trial) -> Workload:
    """Classes are the names of the folders in --data. Corrupt pictures are left out, named and counted."""
    root, size = Path(trial.data), trial.size or 64
    classes, paths, labels = listed(root)
    streams = len(paths) * 3 * size * size > IN_MEMORY_BYTES
    readable, pictures = checked(paths, size) if streams else decoded(paths, size)
    report([path for path, good in zip(paths, readable, strict=True) if not good], len(paths))
    labels = labels[readable]
    require_examples(root, classes, labels)
    known = torch.from_numpy(labels)
    parts = dealt(labels, (0.15, 0.1, 0.15))
    train, validation, reference, test = (
        split(pictures, known, part)
        if isinstance(pictures, Tensor)
        else Split(Photographs([pictures[i] for i in part], size), known[torch.from_numpy(part)])
        for part in parts
    )
    return Workload(
        name="folder",
        classes=classes,
        train=train,
        validation=validation,
        reference=reference,
        test=test,
        model=model(trial.model or "resnet18", classes=len(classes), channels=3, size=size),
        target=0.9,
        mean=(0.485, 0.456, 0.406),  # of ImageNet, for photographs in general
        std=(0.229, 0.224, 0.225),
        augment=Augment(shift=size // 16, flip=True),
    )


@dataclass(frozen=True)
class Photographs:
    """Photographs decoded when they are asked for. One found damaged is replaced by the next, and named."""

    paths: Sequence[Path]
    size: int

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        for path in (*self.paths[index:], *self.paths[:index]):
            try:
                return read(path, (3, self.size, self.size))
            except UNREADABLE as error:
                print(f"cannot read {path} ({error}); the next picture stands in for it", file=sys.stderr)  # noqa: T201
        raise ValueError(f"none of {len(self.paths)} pictures can be read")


def listed(root: Path) -> tuple[list[str], list[Path], NDArray[np.int64]]:
    """Class names, every picture's path, and its class's place among the names."""
    if not root.is_dir():
        raise ValueError(f"--data {root} is not a folder: give one that holds a folder of pictures for each class")
    classes = sorted(
        entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__"))
    )
    if len(classes) < 2:
        found = f"one folder only ({classes[0]})" if classes else "no folder"
        raise ValueError(f"--data {root} holds {found}: it needs a folder of pictures for each of two classes or more")
    found_paths = [(path, label) for label, name in enumerate(classes) for path in pictures_in(root / name)]
    return classes, [path for path, _ in found_paths], np.array([label for _, label in found_paths], np.int64)


def pictures_in(place: Path) -> list[Path]:
    """Pictures below a folder, by name."""
    files = (path for path in place.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(place).parts))


def decoded(paths: Sequence[Path], size: int) -> tuple[NDArray[np.bool_], Tensor]:
    """Which pictures can be read, and those pictures."""

    def attempt(path: Path) -> Tensor | None:
        try:
            return read(path, (3, size, size))
        except UNREADABLE:
            return None

    with ThreadPoolExecutor() as pool:
        tried = list(pool.map(attempt, paths))
    good = [picture for picture in tried if picture is not None]
    readable = np.array([picture is not None for picture in tried], bool)
    return readable, torch.stack(good) if good else torch.empty(0, 3, size, size, dtype=torch.uint8)


def checked(paths: Sequence[Path], size: int) -> tuple[NDArray[np.bool_], list[Path]]:
    """Which pictures have a readable header, and their paths: decoding waits until they are needed."""

    def opens(path: Path) -> bool:
        try:
            with Image.open(path):
                return True
        except UNREADABLE:
            return False

    with ThreadPoolExecutor() as pool:
        readable = np.array(list(pool.map(opens, paths)), bool)
    return readable, [path for path, good in zip(paths, readable, strict=True) if good]


def report(corrupt: Sequence[Path], of: int) -> None:
    """Name the pictures left out."""
    if corrupt:
        names = ", ".join(map(str, corrupt[:5])) + (", ..." if len(corrupt) > 5 else "")
        print(f"left out {len(corrupt)} of {of} pictures that cannot be read: {names}", file=sys.stderr)  # noqa: T201


def require_examples(root: Path, classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse classes too small to be dealt into four parts."""
    counts = np.bincount(labels, minlength=len(classes))
    few = [f"{name} ({count})" for name, count in zip(classes, counts, strict=True) if count < 8]
    if few:
        raise ValueError(f"--data {root} has classes with fewer than 8 readable pictures: {', '.join(few)}: add some")
