"""Render what the camera of a vending machine sees: a product on a shelf, its neighbours, and the light.

An image is a function of a seed and its index. Light and camera are a `Scene` in physical units: changing one of its
settings changes the images as in the real world, by a known cause and amount.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
from equipoise.images.camera import (
    add_veil,
    blackbody_gain,
    broadcast_per_image,
    compress_jpeg,
    gaussian_blur,
    gaussian_spot,
    linear_to_srgb8,
    sensor_noise,
)
from equipoise.rng import example_uniforms
from equipoise.workloads.vending.products import Product, draw_sprites

RENDER_BATCH_SIZE = 32  # small enough that the batch stays in a processor's cache
TEXTURE_PATCHES_PER_SIDE = 5  # of the wall's texture
SCENE_DRAW_NAMES = (
    *("turn", "scale", "right", "down", "squeeze", "slant"),  # the product's pose
    *("beside_left", "beside_right", "gap_left", "gap_right", "behind"),  # its neighbours
    *("wall", "wall_warmth", "shade", "shelf", "wood", "texture"),  # the background
    *("rod", "rod_place", "rod_turn", "rod_width", "rod_grey"),  # the wire in front
    *("kelvin", "exposure", "blur", "noise", "spot_down", "spot_right"),  # the light and the camera
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Light and camera of a set of images; each image varies a little about it."""

    kelvin: float = 6500.0
    """colour temperature of the light in kelvin; the camera is balanced for 6500"""
    exposure: float = 0.0
    """exposure of the camera in stops relative to normal"""
    veil: float = 0.0
    """fraction of each pixel that is reflected light, over the whole image"""
    highlight: float = 0.0
    """brightness of a reflected spot off the centre, in full exposures"""
    blur: float = 0.0
    """standard deviation of the Gaussian blur, in pixels of an image with 64 pixels per side"""
    noise: float = 0.01
    """standard deviation of the sensor noise at full exposure, in full exposures"""
    jpeg: int = 100
    """quality of JPEG compression; 100 is no compression"""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), SCENE_RANGES[field.name]
            if not low <= value <= high:
                raise EquipoiseError(
                    "option-range", f"Scene.{field.name} must be from {low:g} to {high:g}, got {value}"
                )


SCENE_RANGES = {
    "kelvin": (1500, 25000),
    "exposure": (-6, 6),
    "veil": (0, 1),
    "highlight": (0, 10),
    "blur": (0, 8),
    "noise": (0, 1),
    "jpeg": (1, 100),
}


def render_images(
    products: Sequence[Product], indices: NDArray[np.int64], seed: int, size: int, scene: Scene | None = None
) -> tuple[Tensor, Tensor]:
    """Render images, uint8 (examples, 3, size, size), and their labels: the index modulo the number of products."""
    scene, labels = scene or Scene(), indices % len(products)
    batches = [
        render_batch(products, indices[start : start + RENDER_BATCH_SIZE], seed, size, scene)
        for start in range(0, len(indices), RENDER_BATCH_SIZE)
    ]
    return torch.cat(batches), torch.from_numpy(labels)


def render_batch(products: Sequence[Product], indices: NDArray[np.int64], seed: int, size: int, scene: Scene) -> Tensor:
    """Render one small batch of images as uint8 (examples, 3, size, size)."""
    table = example_uniforms(seed, np.zeros_like(indices), indices, len(SCENE_DRAW_NAMES))
    draws = dict(zip(SCENE_DRAW_NAMES, table.T, strict=True))
    linear = compose_scene(draw_sprite_atlas(tuple(products), size), indices % len(products), draws, size)
    return apply_jpeg_compression(apply_exposure(linear, draws, scene), scene.jpeg)


@lru_cache(maxsize=8)
def draw_sprite_atlas(products: tuple[Product, ...], size: int) -> Tensor:
    """Draw and cache the sprites of products at `size` pixels per side: (products, 4, size, size)."""
    return torch.from_numpy(draw_sprites(products, size))


def compose_scene(
    product_sprites: Tensor, labels: NDArray[np.int64], draws: dict[str, NDArray[np.float64]], size: int
) -> Tensor:
    """Compose background, neighbours, product and wire in linear light under white."""
    scene = draw_background(draws, size)
    neighbor_gain = broadcast_per_image(0.45 + 0.4 * draws["behind"], scene)
    for side, gap, sign in (("beside_left", "gap_left", -1), ("beside_right", "gap_right", 1)):
        neighbor_labels = (draws[side] * len(product_sprites)).astype(np.int64)
        right, columns = sign * (1.0 + 0.3 * draws[gap]), neighbor_columns(size, sign)
        neighbor = place_sprite(
            product_sprites.index_select(0, torch.from_numpy(neighbor_labels)),
            0.8,
            right,
            0.05 * to_signed_range(draws[gap]),
            0 * right,
            1.0,
            columns=columns,
        )
        scene[..., columns] = alpha_composite(neighbor, scene[..., columns], neighbor_gain)
    product = place_sprite(
        product_sprites.index_select(0, torch.from_numpy(labels)),
        0.62 + 0.3 * draws["scale"],
        0.16 * to_signed_range(draws["right"]),
        0.12 * to_signed_range(draws["down"]),
        0.24 * to_signed_range(draws["turn"]),
        0.82 + 0.18 * draws["squeeze"],
        0.16 * to_signed_range(draws["slant"]),
    )
    return draw_rod(alpha_composite(product, scene), draws)


def to_signed_range(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Map draws from 0 to 1 to the range -1 to 1."""
    return 2 * draws - 1


def place_sprite(
    sprite: Tensor,
    scale: NDArray[np.float64] | float,
    right: NDArray[np.float64],
    down: NDArray[np.float64],
    turn: NDArray[np.float64],
    squeeze: NDArray[np.float64] | float,
    slant: NDArray[np.float64] | float = 0.0,
    columns: slice = slice(None),
) -> Tensor:
    """Scale, move, rotate (radians), squeeze and slant each sprite; return only the `columns` of the result."""
    zero = np.zeros(len(sprite))
    cos, sin = np.cos(turn), np.sin(turn)
    a, b = cos / (scale * squeeze + zero), sin / (scale * squeeze + zero)
    c, d = (slant * cos - sin) / (scale + zero), (slant * sin + cos) / (scale + zero)
    side = sprite.shape[-1]
    down_axis = torch.arange(side) * (2 / side) + (1 / side - 1)
    right_axis = down_axis[columns]
    grid = torch.empty(len(sprite), side, len(right_axis), 2)
    for axis, (along, across, offset) in enumerate([(a, b, -(a * right + b * down)), (c, d, -(c * right + d * down))]):
        by_row = broadcast_per_image(across, grid) * down_axis.view(1, 1, side, 1) + broadcast_per_image(offset, grid)
        torch.add(broadcast_per_image(along, grid) * right_axis, by_row, out=grid[:, None, :, :, axis])
    return F.grid_sample(sprite, grid, align_corners=False)


def neighbor_columns(size: int, sign: int) -> slice:
    """Return the columns that a neighbour on the left (`sign` -1) or right (1) may cover."""
    width = math.ceil(0.37 * size)
    return slice(0, width) if sign < 0 else slice(size - width, size)


def alpha_composite(front: Tensor, back: Tensor, gain: Tensor | float = 1.0) -> Tensor:
    """Composite a premultiplied sprite, brightened by `gain`, over an image."""
    return (front[:, :3] * gain).add_((1 - front[:, 3:]) * back)


def draw_background(draws: dict[str, NDArray[np.float64]], size: int) -> Tensor:
    """Draw wall and shelf in linear light: (examples, 3, size, size)."""
    count = len(draws["wall"])
    patches = example_uniforms(
        1, np.zeros(count, np.int64), (draws["texture"] * 2**40).astype(np.int64), TEXTURE_PATCHES_PER_SIDE**2
    )
    texture = torch.from_numpy(patches).float().view(count, 1, TEXTURE_PATCHES_PER_SIDE, TEXTURE_PATCHES_PER_SIDE)
    texture = F.interpolate(texture, size, mode="bilinear", align_corners=True)
    down = torch.linspace(0, 1, size).view(1, 1, size, 1)
    grey, warmth = 0.12 + 0.4 * draws["wall"], 0.25 * to_signed_range(draws["wall_warmth"])
    wall = broadcast_per_image(np.stack([grey * (1 + warmth), grey, grey * (1 - warmth)], 1), texture)
    wall = wall * (1 - broadcast_per_image(0.5 * draws["shade"], texture) * down) * (0.8 + 0.4 * texture)
    wood = broadcast_per_image((0.15 + 0.35 * draws["wood"])[:, None] * [1.0, 0.85, 0.65], texture)
    shelf = ((down - broadcast_per_image(0.8 + 0.15 * draws["shelf"], texture)) * size).clamp(0, 1)
    return torch.lerp(wall, wood * (0.9 + 0.2 * texture), shelf)


def draw_rod(linear_image: Tensor, draws: dict[str, NDArray[np.float64]]) -> Tensor:
    """Draw a piece of the wire that holds products, in front of half of them."""
    size = linear_image.shape[-1]
    across = torch.linspace(-1, 1, size)
    turn = np.pi * (draws["rod_turn"] - 0.5)
    distance = broadcast_per_image(np.cos(turn), linear_image) * across.view(1, 1, 1, -1) + broadcast_per_image(
        np.sin(turn), linear_image
    ) * across.view(1, 1, -1, 1)
    distance = (distance - broadcast_per_image(0.5 * to_signed_range(draws["rod_place"]), linear_image)).abs()
    width = broadcast_per_image((0.03 + 0.07 * draws["rod_width"]) * (draws["rod"] < 0.5), linear_image)
    alpha = ((width - distance) * (size / 2) + 0.5).clamp(0, 1) * (width > 0)
    grey = broadcast_per_image(0.1 + 0.5 * draws["rod_grey"], linear_image) * (
        1.2 - distance / width.clamp(min=1e-3)
    ).clamp(0.3, 1.2)
    return torch.lerp(linear_image, grey, alpha)


def apply_exposure(linear_image: Tensor, draws: dict[str, NDArray[np.float64]], scene_settings: Scene) -> Tensor:
    """Apply light, reflections, defocus and sensor noise to a linear image; return it as uint8 sRGB."""
    size = linear_image.shape[-1]
    mired = 1e6 / scene_settings.kelvin + 3 * to_signed_range(draws["kelvin"])  # equal steps in mired look equal
    stops = scene_settings.exposure + 0.12 * to_signed_range(draws["exposure"])
    lamp = broadcast_per_image(blackbody_gain(1e6 / mired) * 2 ** stops[:, None], linear_image)
    linear = linear_image * lamp
    if scene_settings.veil:
        linear = add_veil(linear, broadcast_per_image(np.full(len(stops), scene_settings.veil), linear_image), lamp)
    if scene_settings.highlight:
        centre = np.stack(
            [0.55 + 0.3 * to_signed_range(draws["spot_down"]), 0.6 * to_signed_range(draws["spot_right"])], 1
        )
        linear = linear + scene_settings.highlight * lamp * gaussian_spot(size, size, centre)
    if scene_settings.blur:
        sigma = scene_settings.blur * size / 64
        linear = gaussian_blur(linear, sigma * (0.9 + 0.2 * draws["blur"]), 1.1 * sigma)
    if scene_settings.noise:
        grain = sensor_noise(draws["noise"], linear)
        linear = linear + (linear.clamp(min=0).add_(0.04).sqrt_().mul_(grain)).mul_(scene_settings.noise)
    return linear_to_srgb8(linear)


def apply_jpeg_compression(images: Tensor, quality: int) -> Tensor:
    """Compress images as JPEG of a quality and decode them; 100 returns them unchanged."""
    if quality == 100:
        return images
    return compress_jpeg(images, quality)
