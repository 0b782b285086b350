"""Pictures of a labelled folder as tensors, with their boxes in pixels of the square that the detector takes."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from equipoise.boxes.box import BoxedPicture
from equipoise.boxes.problems import Problem, ProblemKind
from equipoise.errors import EquipoiseError
from equipoise.images.placement import ImagePlacement, load_placed_image
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
            return load_placed_image(self.paths[index], (3, self.size, self.size))[0]
        except EquipoiseError as error:
            raise EquipoiseError("dataset-invalid", error.problem, "mend it, or remove it with its labels") from error


def read_boxed_pictures(
    root: Path, pictures: Sequence[BoxedPicture], size: int, workers: int
) -> tuple[list[BoxedPicture], Tensor | LazyPictures, list[Problem]]:
    """Return the pictures that can be decoded, their pixels, and the others as problems."""
    paths = [root / picture.file_name for picture in pictures]
    decoded_bytes = len(paths) * 3 * size * size
    if decoded_bytes > MAX_IN_MEMORY_BYTES or decoded_bytes * COPIES_IN_MEMORY * workers > find_free_memory():
        return list(pictures), LazyPictures(paths, size), []
    with ThreadPoolExecutor() as pool:
        loaded = list(pool.map(partial(try_load_placed, size=size), paths))
    kept = [picture for picture, pixels in zip(pictures, loaded, strict=True) if pixels is not None]
    problems = [
        Problem(ProblemKind.FILE_BROKEN, picture.file_name)
        for picture, pixels in zip(pictures, loaded, strict=True)
        if pixels is None
    ]
    tensors = [pixels for pixels in loaded if pixels is not None]
    return kept, torch.stack(tensors) if tensors else torch.empty(0, 3, size, size, dtype=torch.uint8), problems


def try_load_placed(path: Path, size: int) -> Tensor | None:
    """Load a photograph as uint8 (3, size, size); None if it is damaged."""
    try:
        return load_placed_image(path, (3, size, size))[0]
    except EquipoiseError:
        return None


def boxes_to_targets(pictures: Sequence[BoxedPicture], classes: Sequence[str], size: int) -> Tensor:
    """Return the boxes of pictures as targets (n, boxes, 6), in pixels of the square that each is fitted into."""
    most = max((len(picture.boxes) for picture in pictures), default=0)
    targets = empty_boxes(len(pictures), max(most, 1))
    for index, picture in enumerate(pictures):
        placement = ImagePlacement(picture.width, picture.height, size, size)
        for place, box in enumerate(picture.boxes):
            corners = placement.to_input(torch.tensor([box.x, box.y, box.width, box.height], dtype=torch.float64))
            targets[index, place] = [classes.index(box.label), *corners.tolist(), box.is_crowd]
    return torch.from_numpy(targets).float()
