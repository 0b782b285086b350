"""Pictures of a labelled folder as tensors, with their boxes in pixels of the square that the detector takes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.boxes.box import BoxedPicture
from equipoise.boxes.problems import Problem, ProblemKind
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.images.letterbox import fit_letterbox, load_letterboxed
from equipoise.images.png import PILLOW_ERRORS
from equipoise.workloads.detection.box_augment import empty_boxes
from equipoise.workloads.free_memory import find_free_memory

MAX_IN_MEMORY_BYTES = 2 << 30  # decoded size; larger folders are read while training
COPIES_IN_MEMORY = 4  # of the decoded pictures in each worker


@dataclass(frozen=True)
class LazyPictures:
    """Sequence of photographs decoded on access."""

    paths: Sequence[Path]
    size: int
    """pixels per side of the square that each is fitted into"""

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        try:
            return torch.from_numpy(load_letterboxed(self.paths[index], self.size)[0])
        except PILLOW_ERRORS as error:
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot read {self.paths[index]}: {first_error_line(error)}",
                "mend it, or remove it with its labels",
            ) from error


def read_boxed_pictures(
    root: Path, pictures: Sequence[BoxedPicture], size: int, workers: int
) -> tuple[list[BoxedPicture], Tensor | LazyPictures, list[Problem]]:
    """Return the pictures that can be decoded, their pixels, and the others as problems."""
    paths = [root / picture.file_name for picture in pictures]
    decoded_bytes = len(paths) * 3 * size * size
    if decoded_bytes > MAX_IN_MEMORY_BYTES or decoded_bytes * COPIES_IN_MEMORY * workers > find_free_memory():
        return list(pictures), LazyPictures(paths, size), []
    with ThreadPoolExecutor() as pool:
        loaded = list(pool.map(partial(try_load_letterboxed, size=size), paths))
    kept = [picture for picture, pixels in zip(pictures, loaded, strict=True) if pixels is not None]
    problems = [
        Problem(ProblemKind.FILE_BROKEN, picture.file_name)
        for picture, pixels in zip(pictures, loaded, strict=True)
        if pixels is None
    ]
    tensors = [pixels for pixels in loaded if pixels is not None]
    return kept, torch.stack(tensors) if tensors else torch.empty(0, 3, size, size, dtype=torch.uint8), problems


def try_load_letterboxed(path: Path, size: int) -> Tensor | None:
    """Load a photograph as uint8 (3, size, size); None if it is damaged."""
    try:
        return torch.from_numpy(load_letterboxed(path, size)[0])
    except PILLOW_ERRORS:
        return None


def boxes_to_targets(pictures: Sequence[BoxedPicture], classes: Sequence[str], size: int) -> Tensor:
    """Return the boxes of pictures as targets (n, boxes, 6), in pixels of the square that each is fitted into."""
    most = max((len(picture.boxes) for picture in pictures), default=0)
    targets = empty_boxes(len(pictures), max(most, 1))
    for index, picture in enumerate(pictures):
        letterbox = fit_letterbox(picture.width, picture.height, size)
        for place, box in enumerate(picture.boxes):
            corners = letterbox.boxes_to_square(np.array([box.x, box.y, box.width, box.height], np.float64))
            targets[index, place] = [classes.index(box.label), *corners, box.is_crowd]
    return torch.from_numpy(targets).float()
