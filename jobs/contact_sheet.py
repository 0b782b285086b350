"""Draw a contact sheet: images of a workload in the first column, and what augmentation makes of each beside it.

With --scene-setting it shows rendered vending images instead, one value of that setting per column. The sheet is
written to --out as a PNG; the same command draws the same sheet again and replaces it.

Exit status: 0 done; 2 wrong options or files.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from equipoise.command_line import command
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment
from equipoise.spacing import evenly_spaced_indices
from equipoise.storage.atomic import atomic_write, find_output_file
from equipoise.storage.user_paths import require_local_paths
from equipoise.workloads import load_workload
from equipoise.workloads.image_workload import require_image_workload
from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SOURCE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene, render_images
from jobs.cli.option_parser import parse_options
from jobs.cli.paths import LocalPath, validate_locations

GAP_PIXELS = 2  # pixels between images
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
    """workload to show: vending, digits, ..., or your own module:attribute"""
    out: LocalPath
    """PNG file to write"""
    rows: int = 8
    """number of images, one to a row"""
    columns: int = 8
    """number of columns: the image itself and its variations, or values of --scene-setting"""
    augment: Augment = field(default_factory=Augment)
    """augmentation to show; the workload's own if none is given"""
    scene_setting: Literal["kelvin", "exposure", "veil", "highlight", "blur", "noise", "jpeg"] | None = None
    """setting of the rendered scene to vary, instead of showing augmentation; for the vending workloads only"""
    seed: int = 0
    """seed of the augmentation, or of the rendered scenes"""
    data: str = "data"
    """folder of the workload's files, or its URL"""
    image_size: int | None = None
    """pixels per side of an image; the workload's own if not given"""

    def validate(self) -> None:
        """Refuse values that are out of range, and an --out that cannot be a file."""
        require_local_paths({"--out": self.out})
        validate_locations(self.data)
        if not self.out.name:
            raise EquipoiseError(
                "path-kind", f"cannot write --out {self.out}: it is a folder", "give a file such as sheet.png"
            )
        find_output_file(self.out)  # refuses what is not a file
        for name, low, high in (("rows", 1, 200), ("columns", 1, 200), ("seed", 0, 2**31), ("image_size", 8, 1024)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise EquipoiseError(
                    "option-range", f"--{name.replace('_', '-')} must be from {low} to {high}, got {value}"
                )


@command()
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(ContactSheetOptions)
    options.validate()
    images = render_scene_grid(options) if options.scene_setting else render_augmented_grid(options)
    with atomic_write(options.out) as temporary:
        Image.fromarray(tile_images(images)).save(temporary, "PNG")
    print(options.out)
    return 0


def render_augmented_grid(options: ContactSheetOptions) -> Tensor:
    """Return training images, each followed by its variations: (rows, columns, channels, height, width)."""
    config = TrainConfig(workload=options.workload, data=options.data, image_size=options.image_size, batch_size=2)
    workload = require_image_workload(load_workload(config), "draw a contact sheet")
    indices = evenly_spaced_indices(len(workload.train), options.rows)
    images = torch.stack([workload.train.inputs[int(index)] for index in indices])
    augment = options.augment if has_augmentation(options.augment) else workload.augment
    varied = []
    if isinstance(augment, Augment):  # others may need the targets
        epochs = [np.full_like(indices, epoch) for epoch in range(options.columns - 1)]
        varied = [augment.augment_images(images, options.seed, epoch, indices) for epoch in epochs]
    return torch.stack([images, *varied], 1)


def has_augmentation(augment: Augment) -> bool:
    """Return whether any option of the augmentation differs from its default."""
    return any(getattr(augment, option.name) != option.default for option in fields(augment))


def render_scene_grid(options: ContactSheetOptions) -> Tensor:
    """Return rendered images, one scene setting per column: (rows, columns, channels, height, width)."""
    if options.workload not in PRODUCTS_BY_WORKLOAD:
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --scene-setting with --workload {options.workload}: it is not rendered",
            f"choose {' or '.join(PRODUCTS_BY_WORKLOAD)}",
        )
    products = PRODUCTS_BY_WORKLOAD[options.workload]
    scenes = [
        replace(Scene(), **{str(options.scene_setting): value})
        for value in SCENE_SETTING_VALUES[str(options.scene_setting)][: options.columns]
    ]
    columns = [
        render_images(products, np.arange(options.rows), options.seed, options.image_size or 64, scene)[0]
        for scene in scenes
    ]
    return torch.stack(columns, 1)


def tile_images(images: Tensor) -> NDArray[np.uint8]:
    """Return images (rows, columns, channels, height, width) as one image, with gaps between them."""
    rows, columns, channels, height, width = images.shape
    canvas = np.full(
        (rows * (height + GAP_PIXELS) - GAP_PIXELS, columns * (width + GAP_PIXELS) - GAP_PIXELS, channels),
        255,
        np.uint8,
    )
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP_PIXELS), column * (width + GAP_PIXELS)
            canvas[top : top + height, left : left + width] = images[row, column].permute(1, 2, 0).numpy()
    return canvas[..., 0] if channels == 1 else canvas


if __name__ == "__main__":
    sys.exit(main())
