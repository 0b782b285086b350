"""What stands in a vending machine: products drawn once, as pictures with a transparent ground.

Families differ by shape, members by colours, label and text-like marks. Some members differ by one of these only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from equipoise.images import srgb

Array = NDArray[np.float64]

FINE = 3  # samples a pixel and side while drawing
GLYPHS, GLYPH_ROWS, GLYPH_COLUMNS = 5, 5, 3  # marks of a line, dots of a mark


@dataclass(frozen=True)
class Product:
    """One class."""

    name: str
    family: str
    body: str
    """colours as RRGGBB"""
    label: str
    mark: str
    pattern: str


SHARED = [
    Product("cola can", "can", "b3121d", "f2f2f2", "b3121d", "wave"),
    Product("still water", "bottle", "a8cfe0", "1f5fa8", "ffffff", "band"),
    Product("salted crisps", "bag", "d8262c", "f5c518", "d8262c", "disc"),
]
NEW = [
    Product("cola zero can", "can", "1c1c1e", "c8202b", "f2f2f2", "wave"),
    Product("cherry cola can", "can", "8c1030", "f2f2f2", "8c1030", "wave"),
    Product("peach tea", "bottle", "d98a3d", "f4d9a0", "a03c1e", "band"),
    Product("lemon tea", "bottle", "d9a53d", "f7ec9e", "7a5a10", "band"),
    Product("oat milk", "carton", "e8dcc0", "7a6a48", "ffffff", "stripes"),
    Product("paprika crisps", "bag", "c8401e", "f5c518", "7a1410", "disc"),
    Product("hazelnut bar", "bar", "6b3f22", "e0b060", "3c2012", "diagonal"),
]
OTHERS = [
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
SOURCE = [*SHARED, *OTHERS]
MACHINE = [*SHARED, *NEW]


def sprites(products: tuple[Product, ...], side: int) -> NDArray[np.float32]:
    """Each product in a square of `side` pixels: red, green, blue in linear light times cover, and cover."""
    return np.stack([drawn(product, side) for product in products])


@lru_cache(maxsize=256)
def drawn(product: Product, side: int) -> NDArray[np.float32]:
    """One product: (4, side, side)."""
    across = (np.arange(side * FINE) + 0.5) / (side * FINE) * 2 - 1
    y, x = np.meshgrid(across, across, indexing="ij")
    width, outside = SHAPES[product.family](x, y)
    colours = painted(product, x / width, y) * shaded(product.family, x / width, y)[..., None]
    cover = (outside < 0).astype(float)[..., None]
    picture = np.concatenate([colours * cover, cover], -1)
    small = picture.reshape(side, FINE, side, FINE, 4).mean((1, 3))
    return np.ascontiguousarray(small.transpose(2, 0, 1), dtype=np.float32)


def box(x: Array, y: Array, width: Array | float, top: float, bottom: float, corner: float = 0.06) -> Array:
    """How far a point is outside a box with round corners; negative inside."""
    middle, half = (top + bottom) / 2, (bottom - top) / 2
    dx, dy = np.abs(x) - width + corner, np.abs(y - middle) - half + corner
    return np.asarray(np.hypot(np.maximum(dx, 0), np.maximum(dy, 0)) + np.minimum(np.maximum(dx, dy), 0) - corner)


def can(x: Array, y: Array) -> tuple[Array, Array]:
    """A cylinder that narrows at both ends."""
    width = 0.46 - 0.08 * np.clip((np.abs(y) - 0.7) / 0.15, 0, 1)
    return width, box(x, y, width, -0.86, 0.86, 0.04)


def bottle(x: Array, y: Array) -> tuple[Array, Array]:
    """A neck that widens into a body."""
    width = 0.13 + 0.25 / (1 + np.exp(-(y + 0.42) / 0.07))
    return width, box(x, y, width, -0.97, 0.95, 0.05)


def carton(x: Array, y: Array) -> tuple[Array, Array]:
    """A box with a gable."""
    width = np.where(y < -0.55, 0.44 - 0.5 * np.clip(-0.55 - y, 0, 0.28), 0.44)
    return width, box(x, y, width, -0.93, 0.93, 0.01)


def bag(x: Array, y: Array) -> tuple[Array, Array]:
    """A pillow with crimped ends."""
    width = 0.62 - 0.07 * y**4 + 0.015 * np.sin(40 * y) * (np.abs(y) > 0.78)
    return width, box(x, y, width, -0.88, 0.88, 0.03)


def bar(x: Array, y: Array) -> tuple[Array, Array]:
    """A long wrapper with zigzag ends."""
    width = 0.92 - 0.03 * np.abs(((y * 14) % 2) - 1)
    return width, box(x, y, width, -0.34, 0.34, 0.02)


def cup(x: Array, y: Array) -> tuple[Array, Array]:
    """Wider at the top, with a rim."""
    width = 0.5 - 0.12 * (y + 0.6) / 1.2 + 0.05 * (y < -0.5)
    return width, box(x, y, width, -0.6, 0.62, 0.04)


SHAPES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "can": can,
    "bottle": bottle,
    "carton": carton,
    "bag": bag,
    "bar": bar,
    "cup": cup,
}
ROUND = {"can", "bottle", "cup"}


def shaded(family: str, x: Array, y: Array) -> Array:
    """How much of the light from the upper left comes back from each point; `x` is -1 to 1 over the product."""
    if family in ROUND:
        return np.asarray(0.35 + 0.65 * np.sqrt(np.clip(1 - (x + 0.25) ** 2 / 1.7, 0, 1)) + 0.35 * lobe(x + 0.45, 0.09))
    if family == "bag":
        return np.asarray(
            0.8 + 0.12 * np.sin(3 * x + 2 * y) + 0.1 * np.sin(9 * x - 5 * y) + 0.15 * lobe(x + 0.5 * y + 0.3, 0.15)
        )
    return np.asarray(0.95 - 0.12 * x - 0.08 * y)


def lobe(x: Array, width: float) -> Array:
    """A soft stripe about 0."""
    return np.asarray(np.exp(-((x / width) ** 2)))


def painted(product: Product, x: Array, y: Array) -> Array:
    """Colours without light: body, label in its pattern, marks on it; `x` is -1 to 1 over the product."""
    picture = np.broadcast_to(colour(product.body), (*x.shape, 3)).copy()
    scale = 0.36 if product.family == "bar" else 1.0
    middle = 0.25 if product.family == "bottle" else 0.0
    v = (y - middle) / scale
    if product.family in ("can", "bottle"):
        picture[np.abs(y) > (0.74 if product.family == "can" else 0.93)] = colour("b8bcc4")  # lid and foot
        picture[(y < -0.82) & (product.family == "bottle")] = colour(product.mark)  # cap
    picture[PATTERNS[product.pattern](x, v)] = colour(product.label)
    picture[marks(product.name, x, v)] = colour(product.mark)
    return picture


PATTERNS: dict[str, Callable[[Array, Array], NDArray[np.bool_]]] = {
    "band": lambda x, v: np.abs(v) < 0.36,
    "disc": lambda x, v: x**2 + (v / 0.62) ** 2 < 0.62,
    "diagonal": lambda x, v: np.abs(v + 0.5 * x) < 0.3,
    "wave": lambda x, v: np.abs(v + 0.12 * np.sin(3.1 * x)) < 0.22,
    "stripes": lambda x, v: (np.abs(v) < 0.55) & (((v + 0.55) * 5.5) % 2 < 1.2),
}


def marks(name: str, x: Array, v: Array) -> NDArray[np.bool_]:
    """A line of dots that looks like a word, always the same for a name."""
    dots = (
        np.random.Generator(np.random.Philox(key=crc32(name.encode()))).random((GLYPH_ROWS, GLYPHS, GLYPH_COLUMNS))
        < 0.6
    )
    line = np.concatenate([dots, np.zeros((GLYPH_ROWS, GLYPHS, 1), bool)], 2).reshape(GLYPH_ROWS, -1)
    row = np.floor((v + 0.15) / 0.3 * GLYPH_ROWS).astype(int)
    column = np.floor((x + 0.72) / 1.44 * line.shape[1]).astype(int)
    inside = (row >= 0) & (row < GLYPH_ROWS) & (column >= 0) & (column < line.shape[1])
    return np.asarray(inside & line[np.clip(row, 0, GLYPH_ROWS - 1), np.clip(column, 0, line.shape[1] - 1)])


def colour(code: str) -> Array:
    """RRGGBB in linear light."""
    return srgb.uncoded(np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)]) / 255)
