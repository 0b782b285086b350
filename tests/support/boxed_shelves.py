"""A small workload of rendered shelves, and folders of pictures with boxes."""

from functools import partial

import numpy as np
from PIL import Image

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split
from equipoise.workloads.detection.box_augment import BoxAugment
from equipoise.workloads.detection.center_model import CenterModel
from equipoise.workloads.detection.shelf_renderer import render_shelves
from equipoise.workloads.detection.workload import BoxWorkload
from equipoise.workloads.models import IMAGENET_MEAN, IMAGENET_STD
from equipoise.workloads.vending.products import MACHINE_PRODUCTS

SPLIT_SIZES = {"train": 48, "validation": 17, "reference": 8, "test": 9}
MOVING = Augment(flip=True, shift=3, crop=0.6, distort=0.05, brightness=0.2)


def small_shelf(config=None, **changes):
    """Return shelves of 48 pixels per side, with every change of place that an augmentation has."""
    ends = np.cumsum([0, *SPLIT_SIZES.values()])
    fields = {
        "name": "small-shelf",
        **{
            name: Split(*render_shelves(MACHINE_PRODUCTS, np.arange(first, last), 1, 48))
            for name, first, last in zip(SPLIT_SIZES, ends[:-1], ends[1:], strict=True)
        },
        "model": partial(CenterModel, len(MACHINE_PRODUCTS), width=16),
        "target": 0.5,
        "classes": [product.name for product in MACHINE_PRODUCTS],
        "mean": IMAGENET_MEAN,
        "std": IMAGENET_STD,
        "augment": BoxAugment(pictures=MOVING),
        "defaults": {"optimizer": "adamw", "lr": 2e-3, "clip_norm": 0.5},
    }
    return BoxWorkload(**(fields | changes))


def save_shelf_pictures(folder, count, seed=3, size=96):
    """Save rendered shelves as photographs, each with a margin on one side; return the data set of their boxes."""
    pictures, targets = render_shelves(MACHINE_PRODUCTS, np.arange(count), seed, size)
    boxed = []
    for index, (pixels, boxes) in enumerate(zip(pictures.numpy(), targets.tolist(), strict=True)):
        margin = index % 3 * 8
        wide = np.pad(pixels.transpose(1, 2, 0), ((0, 0), (margin, 0), (0, 0)))
        name = f"photos/IMG_{index:04}.png"
        (folder / "photos").mkdir(parents=True, exist_ok=True)
        Image.fromarray(wide).save(folder / name)
        labelled = tuple(
            LabelledBox(MACHINE_PRODUCTS[int(label)].name, x + margin, y, width, height)
            for label, x, y, width, height, _ in boxes
            if label >= 0
        )
        boxed.append(BoxedPicture(name, size + margin, size, labelled))
    return BoxedDataset(tuple(product.name for product in MACHINE_PRODUCTS), tuple(boxed))
