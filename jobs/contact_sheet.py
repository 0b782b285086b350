"""A contact sheet: pictures of a workload in the first column, beside each what augmentation makes of it."""

import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.storage.atomic import atomic_write
from equipoise.workloads import Workload, load_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SOURCE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images

GAP_PIXELS = 2  # pixels between pictures
SCENE_SETTING_VALUES: dict[str, list[Any]] = {
    "kelvin": [6500, 2500, 3200, 4000, 5000, 8000, 12000],
    "exposure": [0, -2, -1, -0.5, 0.5, 1, 2],
    "veil": [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5],
    "highlight": [0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.2],
    "blur": [0, 0.3, 0.6, 1, 1.5, 2, 3],
    "noise": [0.01, 0.02, 0.04, 0.08, 0.12, 0.2, 0.3],
    "jpeg": [100, 90, 70, 50, 30, 15, 5],
}
PRODUCTS_BY_WORKLOAD = {"vending": MACHINE_PRODUCTS, "vending-source": SOURCE_PRODUCTS}


@dataclass(frozen=True, kw_only=True)
class ContactSheetOptions:
    __doc__ = __doc__

    workload: str
    """vending, digits, ... or module:attribute of your own"""
    out: Path
    """the sheet, a PNG"""
    rows: int = 8
    columns: int = 8
    augment: Augment = field(default_factory=Augment)
    """the variations to show; the workload's own if none is given"""
    scene_setting: Literal["kelvin", "exposure", "veil", "highlight", "blur", "noise", "jpeg"] | None = None
    """of the vending workloads: show this part of the scene turned, not augmentation"""
    seed: int = 0
    data: str = "data"
    """folder of the workload's files"""
    image_size: int | None = None
    """pixels a side; the workload's own if not given"""

    def validate(self) -> None:
        """Refuse what makes no sheet."""
        for name, least, most in (("rows", 1, 200), ("columns", 1, 200), ("seed", 0, 2**31), ("size", 8, 1024)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"--{name} must be from {least} to {most}, got {value}")


def main() -> int:
    """Exit status: 0 done, 2 asked for what cannot be."""
    asked = tyro.cli(ContactSheetOptions)
    try:
        asked.validate()
        shown = render_scene_grid(asked) if asked.scene_setting else render_augmented_grid(asked)
        with atomic_write(asked.out) as temporary:
            Image.fromarray(tile_images(shown)).save(temporary, "PNG")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(asked.out)
    return 0


def render_augmented_grid(options: ContactSheetOptions) -> Tensor:
    """Training pictures, each followed by its variations: (rows, columns, channels, height, width)."""
    made: Workload = load_workload(
        TrainConfig(workload=options.workload, data=options.data, image_size=options.image_size, batch_size=1)
    )
    chosen = np.linspace(0, len(made.train) - 1, min(options.rows, len(made.train))).astype(np.int64)
    pictures = torch.stack([made.train.pictures[int(index)] for index in chosen])
    vary = options.augment if has_augmentation(options.augment) else made.augment
    epochs = range(options.columns - 1) if vary else []
    changed = [vary(pictures, options.seed, np.full_like(chosen, epoch), chosen) for epoch in epochs if vary]
    return torch.stack([pictures, *changed], 1)


def has_augmentation(augment: Augment) -> bool:
    """Whether any variation is asked for."""
    return any(getattr(augment, one.name) != one.default for one in fields(augment))


def render_scene_grid(options: ContactSheetOptions) -> Tensor:
    """Pictures under one scene, then with one of its dials turned: (rows, columns, channels, height, width)."""
    if options.workload not in PRODUCTS_BY_WORKLOAD:
        raise ValueError(f"--scene-setting is for {' and '.join(PRODUCTS_BY_WORKLOAD)}, not for {options.workload}")
    products = PRODUCTS_BY_WORKLOAD[options.workload]
    scenes = [
        replace(Scene(), **{str(options.scene_setting): value})
        for value in SCENE_SETTING_VALUES[str(options.scene_setting)][: options.columns]
    ]
    rows = [
        render_images(products, np.arange(options.rows), options.seed, options.image_size or 64, scene)[0]
        for scene in scenes
    ]
    return torch.stack(rows, 1)


def tile_images(images: Tensor) -> NDArray[np.uint8]:
    """(rows, columns, channels, height, width) as one picture with gaps."""
    rows, columns, channels, height, width = images.shape
    paper = np.full(
        (rows * (height + GAP_PIXELS) - GAP_PIXELS, columns * (width + GAP_PIXELS) - GAP_PIXELS, channels),
        255,
        np.uint8,
    )
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP_PIXELS), column * (width + GAP_PIXELS)
            paper[top : top + height, left : left + width] = images[row, column].permute(1, 2, 0).numpy()
    return paper[..., 0] if channels == 1 else paper


if __name__ == "__main__":
    sys.exit(main())
