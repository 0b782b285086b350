"""Products of a vending machine, drawn as sprites with a transparent background.

Families differ by shape; their members differ by colours, label and text-like marks, some by only one of these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from equipoise.images.srgb import srgb_decode
from equipoise.type_aliases import FloatArray

SUPERSAMPLES_PER_SIDE = 3  # samples per pixel in each direction, for antialiasing
GLYPHS_PER_LINE, DOT_ROWS_PER_GLYPH, DOT_COLUMNS_PER_GLYPH = 5, 5, 3


@dataclass(frozen=True)
class Product:
    """Appearance of one product, which is one class."""

    name: str
    family: str
    """key of OUTLINES_BY_FAMILY"""
    body_color: str
    """colour of the package as RRGGBB in sRGB, like the next two"""
    label_color: str
    mark_color: str
    pattern: str
    """key of LABEL_PATTERNS"""


SHARED_PRODUCTS = [
    Product("cola can", "can", "b3121d", "f2f2f2", "b3121d", "wave"),
    Product("still water", "bottle", "a8cfe0", "1f5fa8", "ffffff", "band"),
    Product("salted crisps", "bag", "d8262c", "f5c518", "d8262c", "disc"),
]
MACHINE_ONLY_PRODUCTS = [
    Product("cola zero can", "can", "1c1c1e", "c8202b", "f2f2f2", "wave"),
    Product("cherry cola can", "can", "8c1030", "f2f2f2", "8c1030", "wave"),
    Product("peach tea", "bottle", "d98a3d", "f4d9a0", "a03c1e", "band"),
    Product("lemon tea", "bottle", "d9a53d", "f7ec9e", "7a5a10", "band"),
    Product("oat milk", "carton", "e8dcc0", "7a6a48", "ffffff", "stripes"),
    Product("paprika crisps", "bag", "c8401e", "f5c518", "7a1410", "disc"),
    Product("hazelnut bar", "bar", "6b3f22", "e0b060", "3c2012", "diagonal"),
]
SOURCE_ONLY_PRODUCTS = [
    Product("orange can", "can", "e8761a", "ffffff", "2c6e2c", "disc"),
    Product("lemon can", "can", "e6d22a", "2f7d32", "ffffff", "diagonal"),
    Product("energy can", "can", "20346e", "c0c4cc", "d11f2f", "diagonal"),
    Product("beer can", "can", "c9a227", "ffffff", "7a1410", "band"),
    Product("tonic can", "can", "d8d8dc", "2a4d9c", "d8d8dc", "stripes"),
    Product("sparkling water", "bottle", "7fb89a", "1e7a46", "ffffff", "band"),
    Product("apple juice", "bottle", "c9b03a", "4c8c2b", "ffffff", "disc"),
    Product("iced coffee", "bottle", "8a6242", "3a2416", "e8dcc0", "stripes"),
    Product("sports drink", "bottle", "2f8fd0", "f0f0f0", "f07a1a", "diagonal"),
    Product("milk", "carton", "f2f2f2", "2a62b0", "ffffff", "wave"),
    Product("orange juice", "carton", "f2a21e", "ffffff", "2f7d32", "disc"),
    Product("cocoa", "carton", "6b3f22", "f2d9a8", "6b3f22", "wave"),
    Product("soy drink", "carton", "cfe0b0", "4c7a2b", "ffffff", "stripes"),
    Product("onion crisps", "bag", "2f7d32", "f5c518", "1c4a1e", "disc"),
    Product("corn chips", "bag", "e0a01e", "c8202b", "ffffff", "diagonal"),
    Product("gummy bears", "bag", "d8c21e", "d11f5f", "ffffff", "wave"),
    Product("nuts", "bag", "24406e", "d8c8a0", "24406e", "band"),
    Product("milk chocolate", "bar", "5a2a86", "f2f2f2", "5a2a86", "wave"),
    Product("dark chocolate", "bar", "2a1a14", "c9a227", "f2f2f2", "band"),
    Product("muesli bar", "bar", "4c8c2b", "f4e6b8", "6b3f22", "stripes"),
    Product("yoghurt", "cup", "f2f2f2", "d11f5f", "ffffff", "disc"),
]
SOURCE_PRODUCTS = [*SHARED_PRODUCTS, *SOURCE_ONLY_PRODUCTS]
MACHINE_PRODUCTS = [*SHARED_PRODUCTS, *MACHINE_ONLY_PRODUCTS]


def draw_sprites(products: tuple[Product, ...], side_pixels: int) -> NDArray[np.float32]:
    """Draw products as (products, 4, side, side): linear red, green and blue premultiplied by alpha, and alpha."""
    return np.stack([draw_product(product, side_pixels) for product in products])


@lru_cache(maxsize=256)
def draw_product(product: Product, side_pixels: int) -> NDArray[np.float32]:
    """Draw one product as (4, side, side): linear red, green and blue premultiplied by alpha, and alpha."""
    axis = (np.arange(side_pixels * SUPERSAMPLES_PER_SIDE) + 0.5) / (side_pixels * SUPERSAMPLES_PER_SIDE) * 2 - 1
    y, x = np.meshgrid(axis, axis, indexing="ij")
    width, distance = OUTLINES_BY_FAMILY[product.family](x, y)
    colours = paint_label(product, x / width, y) * shading_gain(product.family, x / width, y)[..., None]
    alpha = (distance < 0).astype(float)[..., None]
    sprite = np.concatenate([colours * alpha, alpha], -1)
    averaged = sprite.reshape(side_pixels, SUPERSAMPLES_PER_SIDE, side_pixels, SUPERSAMPLES_PER_SIDE, 4).mean((1, 3))
    return np.ascontiguousarray(averaged.transpose(2, 0, 1), dtype=np.float32)


def box_distance(
    x: FloatArray, y: FloatArray, width: FloatArray | float, top: float, bottom: float, corner: float = 0.06
) -> FloatArray:
    """Return the signed distance of points from a box with round corners; negative inside."""
    middle, half = (top + bottom) / 2, (bottom - top) / 2
    dx, dy = np.abs(x) - width + corner, np.abs(y - middle) - half + corner
    return np.asarray(np.hypot(np.maximum(dx, 0), np.maximum(dy, 0)) + np.minimum(np.maximum(dx, dy), 0) - corner)


def can_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a can: a cylinder that narrows at both ends."""
    width = 0.46 - 0.08 * np.clip((np.abs(y) - 0.7) / 0.15, 0, 1)
    return width, box_distance(x, y, width, -0.86, 0.86, 0.04)


def bottle_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a bottle: a neck that widens into a body."""
    width = 0.13 + 0.25 / (1 + np.exp(-(y + 0.42) / 0.07))
    return width, box_distance(x, y, width, -0.97, 0.95, 0.05)


def carton_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a carton: a box with a gable."""
    width = np.where(y < -0.55, 0.44 - 0.5 * np.clip(-0.55 - y, 0, 0.28), 0.44)
    return width, box_distance(x, y, width, -0.93, 0.93, 0.01)


def bag_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a bag: a pillow with crimped ends."""
    width = 0.62 - 0.07 * y**4 + 0.015 * np.sin(40 * y) * (np.abs(y) > 0.78)
    return width, box_distance(x, y, width, -0.88, 0.88, 0.03)


def bar_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a bar: a long wrapper with zigzag ends."""
    width = 0.92 - 0.03 * np.abs(((y * 14) % 2) - 1)
    return width, box_distance(x, y, width, -0.34, 0.34, 0.02)


def cup_outline(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return half width and signed distance of a cup: wider at the top, with a rim."""
    width = 0.5 - 0.12 * (y + 0.6) / 1.2 + 0.05 * (y < -0.5)
    return width, box_distance(x, y, width, -0.6, 0.62, 0.04)


OUTLINES_BY_FAMILY: dict[str, Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]] = {
    "can": can_outline,
    "bottle": bottle_outline,
    "carton": carton_outline,
    "bag": bag_outline,
    "bar": bar_outline,
    "cup": cup_outline,
}
ROUND_FAMILIES = {"can", "bottle", "cup"}


def shading_gain(family: str, x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the fraction of light from the upper left that each point reflects; `x` is -1 to 1 over the product."""
    if family in ROUND_FAMILIES:
        return np.asarray(
            0.35 + 0.65 * np.sqrt(np.clip(1 - (x + 0.25) ** 2 / 1.7, 0, 1)) + 0.35 * gaussian_lobe(x + 0.45, 0.09)
        )
    if family == "bag":
        return np.asarray(
            0.8
            + 0.12 * np.sin(3 * x + 2 * y)
            + 0.1 * np.sin(9 * x - 5 * y)
            + 0.15 * gaussian_lobe(x + 0.5 * y + 0.3, 0.15)
        )
    return np.asarray(0.95 - 0.12 * x - 0.08 * y)


def gaussian_lobe(x: FloatArray, width: float) -> FloatArray:
    """Return a Gaussian of peak 1 at 0: a soft stripe."""
    return np.asarray(np.exp(-((x / width) ** 2)))


def paint_label(product: Product, x: FloatArray, y: FloatArray) -> FloatArray:
    """Paint body, label pattern and marks in unshaded linear colours; `x` is -1 to 1 over the product."""
    image = np.broadcast_to(parse_hex_color(product.body_color), (*x.shape, 3)).copy()
    scale = 0.36 if product.family == "bar" else 1.0
    middle = 0.25 if product.family == "bottle" else 0.0
    v = (y - middle) / scale
    if product.family in ("can", "bottle"):
        image[np.abs(y) > (0.74 if product.family == "can" else 0.93)] = parse_hex_color("b8bcc4")  # lid and foot
        image[(y < -0.82) & (product.family == "bottle")] = parse_hex_color(product.mark_color)  # cap
    image[LABEL_PATTERNS[product.pattern](x, v)] = parse_hex_color(product.label_color)
    image[text_mark_mask(product.name, x, v)] = parse_hex_color(product.mark_color)
    return image


LABEL_PATTERNS: dict[str, Callable[[FloatArray, FloatArray], NDArray[np.bool_]]] = {
    "band": lambda x, v: np.abs(v) < 0.36,
    "disc": lambda x, v: x**2 + (v / 0.62) ** 2 < 0.62,
    "diagonal": lambda x, v: np.abs(v + 0.5 * x) < 0.3,
    "wave": lambda x, v: np.abs(v + 0.12 * np.sin(3.1 * x)) < 0.22,
    "stripes": lambda x, v: (np.abs(v) < 0.55) & (((v + 0.55) * 5.5) % 2 < 1.2),
}


def text_mark_mask(product_name: str, x: FloatArray, v: FloatArray) -> NDArray[np.bool_]:
    """Return the mask of a line of dots that looks like a word; it depends only on the product's name."""
    dots = (
        np.random.Generator(np.random.Philox(key=crc32(product_name.encode()))).random(
            (DOT_ROWS_PER_GLYPH, GLYPHS_PER_LINE, DOT_COLUMNS_PER_GLYPH)
        )
        < 0.6
    )
    line = np.concatenate([dots, np.zeros((DOT_ROWS_PER_GLYPH, GLYPHS_PER_LINE, 1), bool)], 2).reshape(
        DOT_ROWS_PER_GLYPH, -1
    )
    row = np.floor((v + 0.15) / 0.3 * DOT_ROWS_PER_GLYPH).astype(int)
    column = np.floor((x + 0.72) / 1.44 * line.shape[1]).astype(int)
    inside = (row >= 0) & (row < DOT_ROWS_PER_GLYPH) & (column >= 0) & (column < line.shape[1])
    return np.asarray(inside & line[np.clip(row, 0, DOT_ROWS_PER_GLYPH - 1), np.clip(column, 0, line.shape[1] - 1)])


def parse_hex_color(hex_code: str) -> FloatArray:
    """Convert an sRGB colour RRGGBB to linear red, green and blue."""
    return srgb_decode(np.array([int(hex_code[i : i + 2], 16) for i in (0, 2, 4)]) / 255)
