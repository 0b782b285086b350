"""Variations of training pictures: batched, on the device, drawn for the example and not by the process."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise import keys


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How far a picture may be moved without becoming another class."""

    shift: int = 0
    """pixels in any direction; what comes in from outside is black"""
    flip: bool = False
    """left to right, for half of the pictures"""

    def __call__(self, images: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]) -> Tensor:
        """`images` (n, channels, height, width), each moved as its example's key says in its epoch."""
        draws = keys.uniforms(seed, epochs, examples, 3)
        if self.shift:
            images = shifted(images, (draws[:, :2] * (2 * self.shift + 1)).astype(np.int64), self.shift)
        if self.flip:
            flips = torch.from_numpy(draws[:, 2] < 0.5).to(images.device)
            images = torch.where(flips[:, None, None, None], images.flip(-1), images)
        return images


def shifted(images: Tensor, corners: NDArray[np.int64], most: int) -> Tensor:
    """Each picture cut from itself framed by `most` black pixels, at its own corner (row, column)."""
    height, width = images.shape[-2:]
    framed = F.pad(images, (most, most, most, most))
    windows = framed.unfold(2, height, 1).unfold(3, width, 1)  # n, c, row, column, height, width: a view
    row, column = torch.from_numpy(corners).to(images.device).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, row, column]
