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

from equipoise.config import Trial
from equipoise.images.augment import Augment
from equipoise.storage import atomic as store
from equipoise.workloads import Workload, workload
from equipoise.workloads.vending.products import MACHINE, SOURCE
from equipoise.workloads.vending.renderer import Scene, rendered

GAP = 2  # pixels between pictures
DIALS: dict[str, list[Any]] = {
    "kelvin": [6500, 2500, 3200, 4000, 5000, 8000, 12000],
    "exposure": [0, -2, -1, -0.5, 0.5, 1, 2],
    "veil": [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5],
    "highlight": [0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.2],
    "blur": [0, 0.3, 0.6, 1, 1.5, 2, 3],
    "noise": [0.01, 0.02, 0.04, 0.08, 0.12, 0.2, 0.3],
    "jpeg": [100, 90, 70, 50, 30, 15, 5],
}
PRODUCTS = {"vending": MACHINE, "vending-source": SOURCE}


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    workload: str
    """vending, digits, ... or module:attribute of your own"""
    out: Path
    """the sheet, a PNG"""
    rows: int = 8
    columns: int = 8
    vary: Augment = field(default_factory=Augment)
    """the variations to show; the workload's own if none is given"""
    dial: Literal["kelvin", "exposure", "veil", "highlight", "blur", "noise", "jpeg"] | None = None
    """of the vending workloads: show this part of the scene turned, not augmentation"""
    seed: int = 0
    data: str = "data"
    """folder of the workload's files"""
    size: int | None = None
    """pixels a side; the workload's own if not given"""

    def check(self) -> None:
        """Refuse what makes no sheet."""
        for name, least, most in (("rows", 1, 200), ("columns", 1, 200), ("seed", 0, 2**31), ("size", 8, 1024)):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"--{name} must be from {least} to {most}, got {value}")


def main() -> int:
    """Exit status: 0 done, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        asked.check()
        shown = dialled(asked) if asked.dial else varied(asked)
        with store.whole(asked.out) as temporary:
            Image.fromarray(sheet(shown)).save(temporary, "PNG")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(asked.out)
    return 0


def varied(asked: Asked) -> Tensor:
    """Training pictures, each followed by its variations: (rows, columns, channels, height, width)."""
    made: Workload = workload(Trial(workload=asked.workload, data=asked.data, size=asked.size, batch=1))
    chosen = np.linspace(0, len(made.train) - 1, min(asked.rows, len(made.train))).astype(np.int64)
    pictures = torch.stack([made.train.pictures[int(index)] for index in chosen])
    vary = asked.vary if any_of(asked.vary) else made.augment
    epochs = range(asked.columns - 1) if vary else []
    changed = [vary(pictures, asked.seed, np.full_like(chosen, epoch), chosen) for epoch in epochs if vary]
    return torch.stack([pictures, *changed], 1)


def any_of(vary: Augment) -> bool:
    """Whether any variation is asked for."""
    return any(getattr(vary, one.name) != one.default for one in fields(vary))


def dialled(asked: Asked) -> Tensor:
    """Pictures under one scene, then with one of its dials turned: (rows, columns, channels, height, width)."""
    if asked.workload not in PRODUCTS:
        raise ValueError(f"--dial is for {' and '.join(PRODUCTS)}, not for {asked.workload}")
    products = PRODUCTS[asked.workload]
    scenes = [replace(Scene(), **{str(asked.dial): value}) for value in DIALS[str(asked.dial)][: asked.columns]]
    rows = [rendered(products, np.arange(asked.rows), asked.seed, asked.size or 64, scene)[0] for scene in scenes]
    return torch.stack(rows, 1)


def sheet(pictures: Tensor) -> NDArray[np.uint8]:
    """(rows, columns, channels, height, width) as one picture with gaps."""
    rows, columns, channels, height, width = pictures.shape
    paper = np.full((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, channels), 255, np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + GAP), column * (width + GAP)
            paper[top : top + height, left : left + width] = pictures[row, column].permute(1, 2, 0).numpy()
    return paper[..., 0] if channels == 1 else paper


if __name__ == "__main__":
    sys.exit(main())
