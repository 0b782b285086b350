"""Renders what the camera of a vending machine sees: a product on a shelf, its neighbours, and the light.

A picture is a function of a seed and its index. The light is a `Scene` in physical units: turning one of its dials
changes the pictures as the world would, by a known cause and size.
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

from equipoise import rng as keys
from equipoise.images import camera as light
from equipoise.images.png import through_jpeg
from equipoise.workloads.vending.products import Product, sprites

AT_A_TIME = 32  # pictures: their planes stay in a processor's cache
BLOTCHES = 5  # patches of the wall's texture a side
DRAWS = (
    *("turn", "scale", "right", "down", "squeeze", "slant"),  # the product's pose
    *("beside_left", "beside_right", "gap_left", "gap_right", "behind"),  # its neighbours
    *("wall", "wall_warmth", "shade", "shelf", "wood", "texture"),  # the ground
    *("rod", "rod_place", "rod_turn", "rod_width", "rod_grey"),  # what stands in front
    *("kelvin", "exposure", "blur", "noise", "spot_down", "spot_right"),  # the light and the camera
)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Light and camera. Each picture varies a little about it."""

    kelvin: float = 6500.0
    """colour temperature of the light; the camera is balanced for 6500"""
    exposure: float = 0.0
    """stops"""
    veil: float = 0.0
    """share of what is seen that is light reflected by the table, over the whole picture"""
    highlight: float = 0.0
    """brightness of its reflected spot, off the centre, in full exposures"""
    blur: float = 0.0
    """standard deviation of defocus, in pixels of a picture of 64"""
    noise: float = 0.01
    """of the sensor at full exposure, in full exposures"""
    jpeg: int = 100
    """quality of compression; 100 is none"""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), RANGES[field.name]
            if not low <= value <= high:
                raise ValueError(f"Scene.{field.name} must be from {low:g} to {high:g}, got {value}")


RANGES = {
    "kelvin": (1500, 25000),
    "exposure": (-6, 6),
    "veil": (0, 1),
    "highlight": (0, 10),
    "blur": (0, 8),
    "noise": (0, 1),
    "jpeg": (1, 100),
}


def rendered(
    products: Sequence[Product], indices: NDArray[np.int64], seed: int, size: int, scene: Scene | None = None
) -> tuple[Tensor, Tensor]:
    """Pictures, uint8 (examples, 3, size, size), and which product each shows: the index modulo their number."""
    scene, labels = scene or Scene(), indices % len(products)
    parts = [
        picture(products, indices[start : start + AT_A_TIME], seed, size, scene)
        for start in range(0, len(indices), AT_A_TIME)
    ]
    return torch.cat(parts), torch.from_numpy(labels)


def picture(products: Sequence[Product], indices: NDArray[np.int64], seed: int, size: int, scene: Scene) -> Tensor:
    """A few pictures at a time."""
    table = keys.uniforms(seed, np.zeros_like(indices), indices, len(DRAWS))
    drawn = dict(zip(DRAWS, table.T, strict=True))
    linear = staged(atlas(tuple(products), size), indices % len(products), drawn, size)
    return compressed(exposed(linear, drawn, scene), scene.jpeg)


@lru_cache(maxsize=8)
def atlas(products: tuple[Product, ...], size: int) -> Tensor:
    """Drawings of the products, as fine as the pictures that show them."""
    return torch.from_numpy(sprites(products, size))


def staged(drawings: Tensor, labels: NDArray[np.int64], drawn: dict[str, NDArray[np.float64]], size: int) -> Tensor:
    """What stands in front of the camera, in linear light under white."""
    scene = ground(drawn, size)
    darker = light.column(0.45 + 0.4 * drawn["behind"], scene)
    for side, gap, sign in (("beside_left", "gap_left", -1), ("beside_right", "gap_right", 1)):
        other = (drawn[side] * len(drawings)).astype(np.int64)
        right, strip = sign * (1.0 + 0.3 * drawn[gap]), beside(size, sign)
        next_to = placed(
            drawings.index_select(0, torch.from_numpy(other)),
            0.8,
            right,
            0.05 * between(drawn[gap]),
            0 * right,
            1.0,
            columns=strip,
        )
        scene[..., strip] = over(next_to, scene[..., strip], darker)
    mine = placed(
        drawings.index_select(0, torch.from_numpy(labels)),
        0.62 + 0.3 * drawn["scale"],
        0.16 * between(drawn["right"]),
        0.12 * between(drawn["down"]),
        0.24 * between(drawn["turn"]),
        0.82 + 0.18 * drawn["squeeze"],
        0.16 * between(drawn["slant"]),
    )
    return rod(over(mine, scene), drawn)


def between(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """0 to 1 as -1 to 1."""
    return 2 * draws - 1


def placed(
    sprite: Tensor,
    scale: NDArray[np.float64] | float,
    right: NDArray[np.float64],
    down: NDArray[np.float64],
    turn: NDArray[np.float64],
    squeeze: NDArray[np.float64] | float,
    slant: NDArray[np.float64] | float = 0.0,
    columns: slice = slice(None),
) -> Tensor:
    """Each drawing moved, turned by radians, narrowed as if seen from the side, and slanted; as seen in `columns`."""
    zero = np.zeros(len(sprite))
    cos, sin = np.cos(turn), np.sin(turn)
    a, b = cos / (scale * squeeze + zero), sin / (scale * squeeze + zero)
    c, d = (slant * cos - sin) / (scale + zero), (slant * sin + cos) / (scale + zero)
    side = sprite.shape[-1]
    down_at = torch.arange(side) * (2 / side) + (1 / side - 1)
    right_at = down_at[columns]
    grid = torch.empty(len(sprite), side, len(right_at), 2)
    for axis, (along, across, offset) in enumerate([(a, b, -(a * right + b * down)), (c, d, -(c * right + d * down))]):
        by_row = light.column(across, grid) * down_at.view(1, 1, side, 1) + light.column(offset, grid)
        torch.add(light.column(along, grid) * right_at, by_row, out=grid[:, None, :, :, axis])
    return F.grid_sample(sprite, grid, align_corners=False)


def beside(size: int, sign: int) -> slice:
    """The columns in which a neighbour may stand."""
    width = math.ceil(0.37 * size)
    return slice(0, width) if sign < 0 else slice(size - width, size)


def over(front: Tensor, back: Tensor, gain: Tensor | float = 1.0) -> Tensor:
    """A drawing with cover in front of a picture."""
    return (front[:, :3] * gain).add_((1 - front[:, 3:]) * back)


def ground(drawn: dict[str, NDArray[np.float64]], size: int) -> Tensor:
    """Wall and shelf."""
    count = len(drawn["wall"])
    patches = keys.uniforms(1, np.zeros(count, np.int64), (drawn["texture"] * 2**40).astype(np.int64), BLOTCHES**2)
    texture = torch.from_numpy(patches).float().view(count, 1, BLOTCHES, BLOTCHES)
    texture = F.interpolate(texture, size, mode="bilinear", align_corners=True)
    down = torch.linspace(0, 1, size).view(1, 1, size, 1)
    grey, warmth = 0.12 + 0.4 * drawn["wall"], 0.25 * between(drawn["wall_warmth"])
    wall = light.column(np.stack([grey * (1 + warmth), grey, grey * (1 - warmth)], 1), texture)
    wall = wall * (1 - light.column(0.5 * drawn["shade"], texture) * down) * (0.8 + 0.4 * texture)
    wood = light.column((0.15 + 0.35 * drawn["wood"])[:, None] * [1.0, 0.85, 0.65], texture)
    shelf = ((down - light.column(0.8 + 0.15 * drawn["shelf"], texture)) * size).clamp(0, 1)
    return torch.lerp(wall, wood * (0.9 + 0.2 * texture), shelf)


def rod(scene: Tensor, drawn: dict[str, NDArray[np.float64]]) -> Tensor:
    """In front of half of the products, a piece of the wire that holds them."""
    size = scene.shape[-1]
    across = torch.linspace(-1, 1, size)
    turn = np.pi * (drawn["rod_turn"] - 0.5)
    away = light.column(np.cos(turn), scene) * across.view(1, 1, 1, -1) + light.column(
        np.sin(turn), scene
    ) * across.view(1, 1, -1, 1)
    away = (away - light.column(0.5 * between(drawn["rod_place"]), scene)).abs()
    width = light.column((0.03 + 0.07 * drawn["rod_width"]) * (drawn["rod"] < 0.5), scene)
    cover = ((width - away) * (size / 2) + 0.5).clamp(0, 1) * (width > 0)
    grey = light.column(0.1 + 0.5 * drawn["rod_grey"], scene) * (1.2 - away / width.clamp(min=1e-3)).clamp(0.3, 1.2)
    return torch.lerp(scene, grey, cover)


def exposed(scene: Tensor, drawn: dict[str, NDArray[np.float64]], asked: Scene) -> Tensor:
    """What the camera makes of it: uint8."""
    size = scene.shape[-1]
    mired = 1e6 / asked.kelvin + 3 * between(drawn["kelvin"])  # equal steps of these look equal
    stops = asked.exposure + 0.12 * between(drawn["exposure"])
    lamp = light.column(light.tint(1e6 / mired) * 2 ** stops[:, None], scene)
    linear = scene * lamp
    if asked.veil:
        linear = light.veiled(linear, light.column(np.full(len(stops), asked.veil), scene), lamp)
    if asked.highlight:
        centre = np.stack([0.55 + 0.3 * between(drawn["spot_down"]), 0.6 * between(drawn["spot_right"])], 1)
        linear = linear + asked.highlight * lamp * light.spot(size, size, centre, 0.35)
    if asked.blur:
        sigma = asked.blur * size / 64
        linear = light.blurred(linear, sigma * (0.9 + 0.2 * drawn["blur"]), 1.1 * sigma)
    if asked.noise:
        grain = light.grain(drawn["noise"], linear)
        linear = linear + (linear.clamp(min=0).add_(0.04).sqrt_().mul_(grain)).mul_(asked.noise)
    return light.encoded(linear)


def compressed(pictures: Tensor, quality: int) -> Tensor:
    """Through JPEG and back."""
    if quality == 100:
        return pictures
    return torch.stack([torch.from_numpy(through_jpeg(one, quality)) for one in pictures])
