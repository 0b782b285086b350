"""Labelled images of a drift, from the folder of a recipe: one subfolder per class, or COCO's JSON beside the images.

Labelled boxes are in pixels of the photograph. Both are fitted into the square of the model as in training and service.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise.boxes.folder import read_boxed_folder
from equipoise.drift.features.box_stats import COUNT_NAMES, classify_counts
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.images.decode import load_image
from equipoise.images.png import PILLOW_ERRORS
from equipoise.type_aliases import AnyArray
from equipoise.workloads import BoxWorkload, ImageWorkload, Split
from equipoise.workloads.detection.box_augment import empty_boxes
from equipoise.workloads.detection.boxed_pictures import boxes_to_targets, read_boxed_pictures

LABELLED_REPEATS = 6  # times that a labelled image of the drift is repeated
MIN_GROUP_IMAGES = 5  # images with as many boxes, from which their mean is compared


def load_labelled_images(folder: Path, base_workload: ImageWorkload | BoxWorkload) -> tuple[Tensor, Tensor]:
    """Load labelled images of the drift and their labels or boxes, in a random order that is always the same."""
    shape = tuple(base_workload.train.inputs[0].shape)
    if isinstance(base_workload, BoxWorkload):
        images, labels = load_boxed_images(folder, base_workload, shape)
    else:
        images, labels = load_classified_images(folder, base_workload, shape)
    order = torch.from_numpy(np.random.Generator(np.random.Philox(key=0)).permutation(len(labels)))
    return images[order], labels[order]


def load_classified_images(folder: Path, base_workload: ImageWorkload, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Load the images below a folder, one subfolder per class, with their labels."""
    files = [
        (path, label)
        for label, name in enumerate(base_workload.classes)
        for path in sorted((folder / name).glob("*.png"))
    ]
    images = torch.empty(len(files), *shape, dtype=torch.uint8)
    for row, (path, _) in enumerate(files):
        try:
            image = load_image(path, shape)
        except PILLOW_ERRORS as error:
            raise EquipoiseError("image-undecodable", f"cannot read {path}: {first_error_line(error)}") from None
        images[row] = image
    return images, torch.tensor([label for _, label in files], dtype=torch.int64)


def load_boxed_images(folder: Path, base_workload: BoxWorkload, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Load the photographs in a folder, fitted into the square of the model, with their boxes there."""
    if not folder.exists():
        return torch.empty(0, *shape, dtype=torch.uint8), base_workload.train.targets[:0]
    size = shape[-1]
    pictures, images, problems = read_boxed_pictures(folder, read_boxed_folder(folder).pictures, size, workers=1)
    if problems:
        raise EquipoiseError("image-undecodable", f"cannot read {folder / problems[0].place}")
    pixels = images if isinstance(images, Tensor) else torch.stack([images[index] for index in range(len(images))])
    return pixels, boxes_to_targets(pictures, base_workload.classes, size).to(base_workload.train.targets.dtype)


def repeat_labelled_images(pictures: Tensor, labels: Tensor) -> Split:
    """Return a split that repeats each labelled image LABELLED_REPEATS times."""
    return Split(pictures.repeat(LABELLED_REPEATS, 1, 1, 1), labels.repeat(LABELLED_REPEATS, *[1] * (labels.ndim - 1)))


def make_room_for_boxes(workload: BoxWorkload, places: int) -> BoxWorkload:
    """Return a workload whose splits have places for at least as many boxes of an image."""
    splits = {name: getattr(workload, name) for name in ("train", "validation", "reference", "test")}
    most = max(places, *(split.targets.shape[1] for split in splits.values()))
    padded: dict[str, Any] = {name: Split(part.inputs, pad_boxes(part.targets, most)) for name, part in splits.items()}
    return replace(workload, **padded)


def pad_boxes(targets: Tensor, places: int) -> Tensor:
    """Return boxes (n, boxes, 6) with unused places behind them, so that there are `places` of an image."""
    missing = places - targets.shape[1]
    if missing <= 0:
        return targets
    return torch.cat([targets, torch.from_numpy(empty_boxes(len(targets), missing)).to(targets)], 1)


def group_images(reference_targets: AnyArray, drifted_targets: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the groups within which images of a drift are compared with reference images: by label.

    Images with boxes are grouped by the number of these, as drift charts do; groups of few images have no partner.
    """
    if reference_targets.ndim == 1:
        return reference_targets, drifted_targets
    reference, drifted = (
        classify_counts(((targets[..., 0] >= 0) & (targets[..., 5] <= 0)).sum(1))
        for targets in (reference_targets, drifted_targets)
    )
    is_large = np.minimum(*(np.bincount(groups, minlength=len(COUNT_NAMES)) for groups in (reference, drifted)))
    if is_large.max() < MIN_GROUP_IMAGES:
        return np.zeros_like(reference), np.zeros_like(drifted)
    known = is_large >= MIN_GROUP_IMAGES
    return np.where(known[reference], reference, -1), np.where(known[drifted], drifted, -2)
