"""Augmentation of pictures with boxes: boxes move with their picture, by the draws of the example."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment, draw_uniforms
from equipoise.type_aliases import FloatArray

MIN_SIDE_PIXELS = 1.0  # of what is left of a box


@dataclass(frozen=True, kw_only=True)
class BoxAugment:
    """Random changes of pictures, with the boxes in them."""

    pictures: Augment
    """changes of the pictures: where things are, light and colours"""
    min_visible: float = 0.3
    """fraction of a box that must stay in the picture; one with less is dropped, and others are cut at the border"""

    def __post_init__(self) -> None:
        if not 0 <= self.min_visible <= 1:
            raise EquipoiseError(
                "augment-invalid", f"BoxAugment.min_visible must be from 0 to 1, got {self.min_visible}"
            )

    def __call__(
        self, images: Tensor, targets: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Augment uint8 pictures (n, channels, height, width) and boxes (n, boxes, 6) of class, x, y, width, height."""
        height, width = images.shape[2:]
        draws = draw_uniforms(seed, epochs, examples)
        matrices = self.pictures.pixel_matrices(draws, (width, height))
        moved = move_boxes(targets.cpu().numpy().astype(np.float64), matrices, (width, height), self.min_visible)
        new_images = self.pictures.apply_draws(images, draws)
        return new_images, torch.from_numpy(moved).to(targets)


def move_boxes(targets: FloatArray, matrices: FloatArray, size: tuple[int, int], min_visible: float) -> FloatArray:
    """Return boxes in pictures warped by matrices that map pixels of the result to those of the original.

    A box becomes the smallest upright one around its four corners. It is cut at the border, and dropped if less than
    `min_visible` of it is left.
    """
    x, y, width, height = targets[..., 1], targets[..., 2], targets[..., 3], targets[..., 4]
    corners = np.stack([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])  # corner, axis, n, boxes
    points = np.concatenate([corners, np.ones_like(corners[:, :1])], 1)
    moved = np.einsum("nij,cjnb->cinb", np.linalg.inv(matrices), points)
    moved = moved[:, :2] / moved[:, 2:]
    start, end = moved.min(0), moved.max(0)  # axis, n, boxes
    limits = np.array(size, np.float64)[:, None, None]
    inner_start, inner_end = np.clip(start, 0, limits), np.clip(end, 0, limits)
    sides = inner_end - inner_start
    visible = sides.prod(0) / np.maximum((end - start).prod(0), 1e-9)
    is_kept = (visible >= min_visible) & (sides.min(0) >= MIN_SIDE_PIXELS) & (targets[..., 0] >= 0)
    result = np.concatenate(
        [targets[..., :1], np.moveaxis(inner_start, 0, -1), np.moveaxis(sides, 0, -1), targets[..., 5:]], -1
    )
    return np.where(is_kept[..., None], result, empty_boxes(*targets.shape[:2]))


def empty_boxes(pictures: int, boxes: int) -> FloatArray:
    """Return unused places for boxes: class -1, and a box of one pixel that no computation divides by zero for."""
    return np.broadcast_to(np.array([-1.0, 0.0, 0.0, 1.0, 1.0, 0.0]), (pictures, boxes, 6)).copy()
