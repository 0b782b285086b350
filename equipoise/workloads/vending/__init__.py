"""Products in a vending machine, rendered by us: a large source set, and the few pictures of one machine."""

from collections.abc import Sequence

import numpy as np

from equipoise.config import Trial
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.models import model
from equipoise.workloads.vending.products import MACHINE, SOURCE, Product
from equipoise.workloads.vending.renderer import rendered

SIZES = (32, 512)
SEED = 2024
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # those that published weights expect
SOURCE_EACH = {"train": 300, "validation": 30, "reference": 30, "test": 60}
"""pictures of each of 24 classes"""
EACH = {"train": 30, "validation": 30, "reference": 100, "test": 100}
"""pictures of each of ten classes: few to learn from"""


def vending_source(trial: Trial) -> Workload:
    """24 classes, plenty of pictures: what a model learns before it meets a machine."""
    return shown("vending-source", SOURCE, SOURCE_EACH, trial, target=0.9, seed=SEED)


def vending(trial: Trial) -> Workload:
    """Ten classes, seven of them unknown to the source; thirty pictures each to learn from."""
    return shown("vending", MACHINE, EACH, trial, target=0.9, seed=SEED + 1)


def shown(
    name: str, products: Sequence[Product], each: dict[str, int], trial: Trial, target: float, seed: int
) -> Workload:
    """A set of products as a workload: each split is the next stretch of one line of pictures."""
    size = trial.size or 64
    if not SIZES[0] <= size <= SIZES[1]:
        raise ValueError(f"{name} renders pictures of {SIZES[0]} to {SIZES[1]} pixels a side, got --size {size}")
    ends = np.cumsum([0, *each.values()]) * len(products)
    parts = {
        part: Split(*rendered(products, np.arange(first, last), seed, size))
        for part, first, last in zip(each, ends[:-1], ends[1:], strict=True)
    }
    return Workload(
        name=name,
        classes=[product.name for product in products],
        train=parts["train"],
        validation=parts["validation"],
        reference=parts["reference"],
        test=parts["test"],
        model=model(trial.model or "lenet", classes=len(products), channels=3, size=size),
        target=target,
        mean=MEAN,
        std=STD,
        augment=Augment(crop=0.7),
    )
