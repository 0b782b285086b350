"""Workload shelf: rendered shelves of a vending machine, with the exact box of each product."""

from functools import lru_cache
from types import MappingProxyType

import numpy as np

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split
from equipoise.workloads.detection.box_augment import BoxAugment
from equipoise.workloads.detection.detectors import find_detector
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.detection.workload import BoxWorkload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS

DEFAULT_PIXELS, PIXEL_STEP, MAX_PIXELS = (
    96,
    24,
    480,
)  # pixels per side: whole slots, and whole places of the detector's maps
RENDER_SEED = 2026
EXAMPLES_PER_SPLIT = {"train": 800, "validation": 200, "reference": 400, "test": 400}
TARGET_PRECISION = 0.5
DETECTION_DEFAULTS = MappingProxyType(
    {"optimizer": "adamw", "lr": 3e-3, "weight_decay": 1e-4, "clip_norm": 10.0, "warmup_examples": 160}
)


def shelf(config: TrainConfig) -> BoxWorkload:
    """Build the workload of rendered shelves; the splits are consecutive ranges of picture indices under one seed."""
    size = config.image_size or DEFAULT_PIXELS
    if size % PIXEL_STEP or not PIXEL_STEP <= size <= MAX_PIXELS:
        raise EquipoiseError(
            "option-range",
            f"shelf renders pictures of a multiple of {PIXEL_STEP} pixels per side up to {MAX_PIXELS},"
            f" got --image-size {size}",
        )
    splits = render_splits(size)
    detector = find_detector(config.model, len(MACHINE_PRODUCTS), size)
    return BoxWorkload(
        name="shelf",
        classes=[product.name for product in MACHINE_PRODUCTS],
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
        augment=BoxAugment(pictures=Augment(shift=4, flip=True)),
        defaults=DETECTION_DEFAULTS,
    )


@lru_cache(maxsize=1)
def render_splits(size: int) -> dict[str, Split]:
    """Render the splits in pictures of `size` pixels; a second call takes the same, as an adaptation does six times."""
    ends = np.cumsum([0, *EXAMPLES_PER_SPLIT.values()])
    return {
        name: Split(*render_shelves(MACHINE_PRODUCTS, np.arange(first, last), RENDER_SEED, size))
        for name, first, last in zip(EXAMPLES_PER_SPLIT, ends[:-1], ends[1:], strict=True)
    }
