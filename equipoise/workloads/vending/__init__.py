"""Workloads vending and vending-source: rendered images of products, few from one machine and a large source set."""

from collections.abc import Sequence

import numpy as np

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.models import IMAGENET_MEAN, IMAGENET_STD, model_factory
from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SOURCE_PRODUCTS, Product
from equipoise.workloads.vending.renderer import render_images

IMAGE_SIZE_BOUNDS_PIXELS = (32, 512)
RENDER_SEED = 2024
SOURCE_EXAMPLES_PER_CLASS = {"train": 300, "validation": 30, "reference": 30, "test": 60}
"""images of each of 24 classes, by split"""
MACHINE_EXAMPLES_PER_CLASS = {"train": 30, "validation": 30, "reference": 100, "test": 100}
"""images of each of ten classes, by split: few to train on"""


def vending_source(config: TrainConfig) -> ImageWorkload:
    """Build the source workload: 24 classes with many images, to pre-train a model for a machine."""
    return render_workload(
        "vending-source", SOURCE_PRODUCTS, SOURCE_EXAMPLES_PER_CLASS, config, target=0.9, seed=RENDER_SEED
    )


def vending(config: TrainConfig) -> ImageWorkload:
    """Build one machine's workload: ten classes, seven of them not in the source, 30 training images each."""
    return render_workload(
        "vending", MACHINE_PRODUCTS, MACHINE_EXAMPLES_PER_CLASS, config, target=0.9, seed=RENDER_SEED + 1
    )


def render_workload(
    name: str,
    products: Sequence[Product],
    examples_per_class: dict[str, int],
    config: TrainConfig,
    target: float,
    seed: int,
) -> ImageWorkload:
    """Render a workload from products; the splits are consecutive ranges of image indices under one seed."""
    size = config.image_size or 64
    if not IMAGE_SIZE_BOUNDS_PIXELS[0] <= size <= IMAGE_SIZE_BOUNDS_PIXELS[1]:
        raise EquipoiseError(
            "option-range",
            f"{name} renders images of {IMAGE_SIZE_BOUNDS_PIXELS[0]} to "
            f"{IMAGE_SIZE_BOUNDS_PIXELS[1]} pixels per side, got --image-size {size}",
        )
    ends = np.cumsum([0, *examples_per_class.values()]) * len(products)
    splits = {
        split: Split(*render_images(products, np.arange(first, last), seed, size))
        for split, first, last in zip(examples_per_class, ends[:-1], ends[1:], strict=True)
    }
    return ImageWorkload(
        name=name,
        classes=[product.name for product in products],
        train=splits["train"],
        validation=splits["validation"],
        reference=splits["reference"],
        test=splits["test"],
        model=model_factory(config.model or "lenet", num_classes=len(products), in_channels=3, image_size=size),
        target=target,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        augment=Augment(crop=0.7),
    )
