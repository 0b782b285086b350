"""Detectors by name: the small one by centres, in any size, and those of torchvision."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.workloads.detection.center_loss import center_loss
from equipoise.workloads.detection.center_model import DEFAULT_BLOCKS, DEFAULT_WIDTH, CenterModel
from equipoise.workloads.detection.torchvision_detectors import (
    SSDLITE_MEAN,
    SSDLITE_STD,
    TorchvisionDetector,
    list_torchvision_detectors,
    torchvision_loss,
)
from equipoise.workloads.models import IMAGENET_MEAN, IMAGENET_STD

CENTER_NAME = re.compile(r"center(?::(\d{1,2})x(\d{1,4}))?")
WIDTH_STEP, MAX_BLOCKS, MAX_WIDTH = 8, 32, 1024


@dataclass(frozen=True)
class Detector:
    """How a detector is built and learns, and how its pictures are normalized."""

    build: Callable[[], nn.Module]
    loss: Callable[[Any, Tensor], Tensor] = center_loss
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    has_independent_classes: bool = False
    """whether the score of a class does not depend on those of others"""


def find_detector(name: str | None, num_classes: int, image_size: int) -> Detector:
    """Return the detector of a name: center, center:BLOCKSxWIDTH, or one of torchvision, tested on pictures."""
    if match := CENTER_NAME.fullmatch(name or "center"):
        blocks, width = int(match[1] or DEFAULT_BLOCKS), int(match[2] or DEFAULT_WIDTH)
        require_center_size(blocks, width)
        return Detector(partial(CenterModel, num_classes, width, blocks), has_independent_classes=True)
    known = list_torchvision_detectors()
    if name not in known:
        similar = "".join(f"did you mean {match}? " for match in get_close_matches(str(name), ["center", *known], 1))
        raise EquipoiseError(
            "model-unknown",
            f"there is no detector {name!r}",
            f"{similar}choose center, a size of it such as center:2x96, or one of torchvision: {', '.join(known)}",
        )
    build = partial(TorchvisionDetector, name, num_classes, image_size)
    try_detector(name, build, image_size)
    if name.startswith("ssdlite"):
        return Detector(build, torchvision_loss, SSDLITE_MEAN, SSDLITE_STD)
    return Detector(build, torchvision_loss)


def require_center_size(blocks: int, width: int) -> None:
    """Refuse a size of the detector by centres that has no channels, or no groups of eight."""
    if not (0 <= blocks <= MAX_BLOCKS and WIDTH_STEP <= width <= MAX_WIDTH) or width % WIDTH_STEP:
        raise EquipoiseError(
            "model-invalid",
            f"cannot build center:{blocks}x{width}",
            f"give 0 to {MAX_BLOCKS} blocks, and a multiple of {WIDTH_STEP} channels up to {MAX_WIDTH}",
        )


def try_detector(name: str, build: Callable[[], nn.Module], image_size: int) -> None:
    """Refuse a detector of torchvision that takes no boxes, such as one of keypoints, or not these pictures."""
    boxes = torch.tensor([[[0.0, 1, 1, image_size / 2, image_size / 2, 0]]] * 2)  # two: some normalize over the batch
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torchvision_loss(build()(torch.zeros(2, 3, image_size, image_size)), boxes)
    except Exception as error:  # whatever a model of torchvision raises
        raise EquipoiseError(
            "model-invalid",
            f"cannot train {name} on boxes in pictures of {image_size} pixels: {first_error_line(error)}",
            "give another detector, or another --image-size",
        ) from error
