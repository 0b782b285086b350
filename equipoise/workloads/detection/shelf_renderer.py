"""Render shelves of a vending machine with two rows of three products, and the exact box of what is seen of each.

A picture is a function of a seed and its index, as in `equipoise.workloads.vending`: products in front cover others,
the price rail covers their feet, and the border of the picture cuts them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.images.camera import broadcast_per_image
from equipoise.rng import example_uniforms
from equipoise.workloads.detection.box_augment import empty_boxes
from equipoise.workloads.vending.products import Product
from equipoise.workloads.vending.renderer import (
    Scene,
    alpha_composite,
    apply_exposure,
    apply_jpeg_compression,
    draw_background,
    draw_sprite_atlas,
    place_sprite,
    to_signed_range,
)

ROWS, COLUMNS = 2, 3
SLOT_ORDER = (0, 2, 1, 4, 3, 5)  # from the back to the front: the middle of the upper row stands before its neighbours
FILLED_SHARE = 0.7  # of the slots
RENDER_BATCH_SIZE = 32  # small enough that the batch stays in a processor's cache
MIN_VISIBLE_SHARE = 0.2  # of a product; one that is hidden further has no box
WIDE_FAMILIES = {"bar": 0.72, "bag": 0.92}  # scale of products that are wider than a slot
SLOT_DRAW_NAMES = ("filled", "product", "scale", "right", "down", "turn", "squeeze", "slant", "distance")
PICTURE_DRAW_NAMES = (
    *("wall", "wall_warmth", "shade", "shelf", "wood", "texture", "rail", "rail_grey"),  # the background
    *("kelvin", "exposure", "blur", "noise", "spot_down", "spot_right"),  # the light and the camera
)
Draws = dict[str, NDArray[np.float64]]


def render_shelves(
    products: Sequence[Product], indices: NDArray[np.int64], seed: int, size: int, scene: Scene | None = None
) -> tuple[Tensor, Tensor]:
    """Render pictures, uint8 (n, 3, size, size), and their boxes (n, 6, 6): class, x, y, width, height, no crowd."""
    batches = [
        render_shelf_batch(tuple(products), indices[start : start + RENDER_BATCH_SIZE], seed, size, scene or Scene())
        for start in range(0, len(indices), RENDER_BATCH_SIZE)
    ]
    pictures, boxes = zip(*batches, strict=True)
    return torch.cat(pictures), torch.cat(boxes)


def render_shelf_batch(
    products: tuple[Product, ...], indices: NDArray[np.int64], seed: int, size: int, scene: Scene
) -> tuple[Tensor, Tensor]:
    """Render one small batch of pictures and their boxes."""
    draws, slots = draw_shelf_uniforms(indices, seed)
    canvas, layers = stack_products(products, draws, slots, size)
    boxes = find_visible_boxes(layers, rail_mask(draws, size), slots, len(products))
    linear = draw_rails(canvas, draws, size)
    return apply_jpeg_compression(apply_exposure(linear, draws, scene), scene.jpeg), boxes


def draw_shelf_uniforms(indices: NDArray[np.int64], seed: int) -> tuple[Draws, list[Draws]]:
    """Return the draws of each picture by name, and those of each of its slots."""
    num_picture, num_slot = len(PICTURE_DRAW_NAMES), len(SLOT_DRAW_NAMES)
    table = example_uniforms(seed, np.zeros_like(indices), indices, num_picture + ROWS * COLUMNS * num_slot)
    slots = table[:, num_picture:].reshape(len(indices), ROWS * COLUMNS, num_slot).transpose(1, 2, 0)
    return (
        dict(zip(PICTURE_DRAW_NAMES, table[:, :num_picture].T, strict=True)),
        [dict(zip(SLOT_DRAW_NAMES, slot, strict=True)) for slot in slots],
    )


def stack_products(
    products: tuple[Product, ...], draws: Draws, slots: Sequence[Draws], size: int
) -> tuple[Tensor, list[Tensor]]:
    """Return the shelf with its products in linear light, and the alpha of each slot's product in the slot's window."""
    canvas = draw_background(draws, size)
    layers = [torch.empty(0)] * len(slots)
    for slot in SLOT_ORDER:
        rows, columns, seen = find_slot_window(slot, size)
        sprite = draw_slot(products, slots[slot], size // ROWS)[..., seen]
        gain = broadcast_per_image(0.75 + 0.35 * slots[slot]["distance"], canvas)
        canvas[..., rows, columns] = alpha_composite(sprite, canvas[..., rows, columns], gain)
        layers[slot] = sprite[:, 3]
    return canvas, layers


def find_slot_window(slot: int, size: int) -> tuple[slice, slice, slice]:
    """Return rows and columns of a picture in which a slot's product may be, and those columns of its square tile."""
    tile, pitch = size // ROWS, size // COLUMNS
    top, left = slot // COLUMNS * tile, slot % COLUMNS * pitch - (tile - pitch) // 2
    seen = slice(max(-left, 0), min(size - left, tile))
    return slice(top, top + tile), slice(left + seen.start, left + seen.stop), seen


def draw_slot(products: tuple[Product, ...], draws: Draws, tile: int) -> Tensor:
    """Draw the product of a slot in a square of `tile` pixels (n, 4, tile, tile), empty where the slot is."""
    labels = pick_labels(draws, len(products))
    fitting = np.array([WIDE_FAMILIES.get(product.family, 1.0) for product in products])[labels]
    sprite = place_sprite(
        draw_sprite_atlas(products, tile).index_select(0, torch.from_numpy(labels)),
        fitting * (0.74 + 0.22 * draws["scale"]),
        0.14 * to_signed_range(draws["right"]),
        0.08 * to_signed_range(draws["down"]) + 0.02,
        0.14 * to_signed_range(draws["turn"]),
        0.85 + 0.15 * draws["squeeze"],
        0.1 * to_signed_range(draws["slant"]),
    )
    return sprite * broadcast_per_image((draws["filled"] < FILLED_SHARE).astype(np.float64), sprite)


def pick_labels(draws: Draws, num_products: int) -> NDArray[np.int64]:
    """Return the product of a slot in each picture."""
    return (draws["product"] * num_products).astype(np.int64)


def rail_mask(draws: Draws, size: int) -> Tensor:
    """Return 1 where a price rail is, at the lower end of each row, else 0: (n, 1, size, 1)."""
    tile = size // ROWS
    height = torch.from_numpy(np.rint((0.06 + 0.06 * draws["rail"]) * tile)).view(-1, 1, 1, 1)
    return (torch.arange(size) % tile).view(1, 1, size, 1).ge(tile - height).float()


def draw_rails(canvas: Tensor, draws: Draws, size: int) -> Tensor:
    """Draw the price rails, with a label below each slot, in front of the products."""
    grey = broadcast_per_image(0.15 + 0.5 * draws["rail_grey"], canvas)
    column = torch.arange(size) % (size // COLUMNS)
    is_label = ((column > size // COLUMNS // 4) & (column < size // COLUMNS * 3 // 4)).float()
    return torch.lerp(canvas, torch.lerp(grey, torch.full_like(grey, 0.85), is_label), rail_mask(draws, size))


def find_visible_boxes(layers: Sequence[Tensor], rail: Tensor, slots: Sequence[Draws], num_products: int) -> Tensor:
    """Return the boxes around what is seen of each product (n, 6, 6), with the class -1 where nothing is."""
    size = rail.shape[2]
    boxes = torch.from_numpy(empty_boxes(len(rail), len(slots))).float()
    uncovered = (1 - rail)[:, 0].repeat(1, 1, size)
    for slot in reversed(SLOT_ORDER):
        rows, columns, _ = find_slot_window(slot, size)
        visible = layers[slot] * uncovered[:, rows, columns]
        uncovered[:, rows, columns] *= 1 - layers[slot]
        share = visible.sum((1, 2)) / layers[slot].sum((1, 2)).clamp(min=1)
        (left, right), (top, bottom) = (find_extent(visible.amax(side) > 0.5) for side in (1, 2))
        labels = torch.from_numpy(pick_labels(slots[slot], num_products))
        is_box = (share >= MIN_VISIBLE_SHARE) & (visible.amax((1, 2)) > 0.5)
        sides = [left + columns.start, top + rows.start, right - left, bottom - top]
        found = torch.stack([labels, *sides, torch.zeros_like(left)], 1).float()
        boxes[:, slot] = torch.where(is_box[:, None], found, boxes[:, slot])
    return boxes


def find_extent(is_seen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first place that is true in each row, and the one after the last."""
    length = is_seen.shape[1]
    flags = is_seen.long()
    return flags.argmax(1), length - flags.flip(1).argmax(1)
