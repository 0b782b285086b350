"""Workload boxes: your own photographs with boxes, labelled in COCO's JSON, YOLO's text files or Pascal VOC's XML."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.boxes.box import BoxedDataset, BoxedPicture
from equipoise.boxes.folder import read_boxed_folder
from equipoise.boxes.problems import DataProblems, count_problems
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import make_printable, pluralize
from equipoise.images.augment import Augment
from equipoise.rng import epoch_permutation
from equipoise.storage.node_cache import fetch_data
from equipoise.storage.object_store import parse_location
from equipoise.workloads.base import Split, select_split
from equipoise.workloads.detection.box_augment import BoxAugment
from equipoise.workloads.detection.boxed_pictures import LazyPictures, boxes_to_targets, read_boxed_pictures
from equipoise.workloads.detection.detectors import find_detector
from equipoise.workloads.detection.shelf import DETECTION_DEFAULTS, TARGET_PRECISION
from equipoise.workloads.detection.workload import BoxWorkload
from equipoise.workloads.image_folder import folder_name

DEFAULT_PIXELS, PIXEL_STEP, MAX_PIXELS = 256, 8, 2048  # pixels per side: whole places of the detector's maps
MIN_PICTURES = 20
SPLIT_FRACTIONS = {"train": 0.6, "validation": 0.15, "reference": 0.1, "test": 0.15}

logger = logging.getLogger(__name__)  # commands configure no handler: Python then prints warnings to stderr as they are


def boxes(config: TrainConfig) -> BoxWorkload:
    """Build the workload of the labelled pictures in --data; report what cannot be used and leave it out."""
    size = require_size(config.image_size or DEFAULT_PIXELS)
    root = fetch_data(config.data)
    dataset = read_boxed_folder(root)
    pictures, pixels, broken = read_boxed_pictures(root, dataset.pictures, size, config.workers)
    warn_of_problems(dataset.problems + count_problems(broken), len(pictures))
    classes = require_examples(config.data, dataset, pictures)
    targets = boxes_to_targets(pictures, classes, size)
    splits = {
        name: select_pictures(pixels, targets, part)
        for name, part in zip(SPLIT_FRACTIONS, deal_pictures(pictures, [*SPLIT_FRACTIONS.values()]), strict=True)
    }
    require_things(config.data, splits)
    detector = find_detector(config.model, len(classes), size)
    return BoxWorkload(
        name=folder_name(parse_location(config.data)),
        classes=classes,
        train=splits["train"],
        validation=splits["validation"],
        reference=splits["reference"],
        test=splits["test"],
        model=detector.build,
        loss=detector.loss,
        has_independent_classes=detector.has_independent_classes,
        target=TARGET_PRECISION,
        mean=detector.mean,
        std=detector.std,
        augment=BoxAugment(
            pictures=Augment(flip=True, crop=0.6, distort=0.03, brightness=0.2, contrast=0.2, saturation=0.2)
        ),
        defaults=DETECTION_DEFAULTS,
    )


def require_size(size: int) -> int:
    """Return the pixels per side of the square that pictures are fitted into; refuse one without whole places."""
    if size % PIXEL_STEP or not 4 * PIXEL_STEP <= size <= MAX_PIXELS:
        raise EquipoiseError(
            "option-range",
            f"boxes takes a multiple of {PIXEL_STEP} pixels per side, from {4 * PIXEL_STEP} to {MAX_PIXELS},"
            f" got --image-size {size}",
        )
    return size


def warn_of_problems(problems: DataProblems, kept: int) -> None:
    """Log a warning that counts and names what was left out."""
    if problems.total:
        lines = "".join(f"\n  {make_printable(line)}" for line in problems.describe())
        logger.warning("left out %s; %s stay:%s", pluralize(problems.total, "thing"), pluralize(kept, "picture"), lines)


def require_examples(location: str, dataset: BoxedDataset, pictures: Sequence[BoxedPicture]) -> list[str]:
    """Return the classes that occur in pictures; refuse too few pictures, and pictures without any box."""
    labels = {box.label for picture in pictures for box in picture.boxes}
    classes = [name for name in dataset.classes if name in labels]
    if len(pictures) < MIN_PICTURES or not classes:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot train on --data {location}: {pluralize(len(pictures), 'labelled picture')} of"
            f" {len(pictures) + dataset.problems.total} can be used, with {pluralize(len(classes), 'kind')} of things",
            f"label at least {MIN_PICTURES}",
        )
    return classes


def require_things(location: str, splits: Mapping[str, Split]) -> None:
    """Refuse a split without anything to find: no precision, and no score from which a box counts, follows from it."""
    for name, split in splits.items():
        is_thing = (split.targets[..., 0] >= 0) & (split.targets[..., 5] == 0)  # crowds are not counted
        if not is_thing.any():
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot train on --data {location}: too few of its pictures have boxes, none of those for {name}",
                "label more pictures with things in them",
            )


def deal_pictures(pictures: Sequence[BoxedPicture], fractions: Sequence[float]) -> list[NDArray[np.int64]]:
    """Deal pictures into disjoint parts in proportion, and in each part those whose rarest class is the same."""
    counts = Counter(label for picture in pictures for label in {box.label for box in picture.boxes})
    rarest = [
        min((counts[box.label], box.label) for box in picture.boxes) if picture.boxes else (0, "")
        for picture in pictures
    ]
    shuffled = epoch_permutation(0, 0, len(pictures)).tolist()
    order = sorted(shuffled, key=lambda index: rarest[index])  # stable: random within a class
    parts: list[list[int]] = [[] for _ in fractions]
    for place, index in enumerate(order, 1):
        missing = [fraction * place - len(part) for fraction, part in zip(fractions, parts, strict=True)]
        parts[int(np.argmax(missing))].append(index)
    return [np.sort(np.array(part, np.int64)) for part in parts]


def select_pictures(pixels: Tensor | LazyPictures, targets: Tensor, part: NDArray[np.int64]) -> Split:
    """Return the pictures at these indices as a split."""
    if isinstance(pixels, Tensor):
        return select_split(pixels, targets, part)
    return Split(LazyPictures([pixels.paths[i] for i in part], pixels.size), targets[torch.from_numpy(part)])
