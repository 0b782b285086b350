"""What a picture's light, focus and frame are like, in a few figures that say which of them changed.

Pictures are looked at on a grid of about 32 points a side, whatever their size, so that a figure costs microseconds.
Logarithms make a change of light add the same to every picture, whatever it shows.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from equipoise.images.srgb import srgb_decode
from equipoise.type_aliases import Float32Array

GRID_POINTS_PER_SIDE = 32  # a side, at which a picture is looked at
CELLS_PER_SIDE = 4  # a side: a reflection is local
JPEG_BLOCK_PIXELS = 8  # pixels a side of what JPEG compresses by itself
MAX_NOISE_LEVELS = 8  # levels: what is rougher is not noise but something seen
GLOBAL_STATISTICS = (
    "red over blue",  # the light's colour temperature
    "green",  # its tint
    "luminance",
    "contrast",
    "black point",
    "saturation",
    "detail",  # falls when out of focus, rises with noise
    "roughness",  # of what is smooth: noise, or what compression took away
    "blocks",
    "direction",  # of detail: turned by a quarter, it changes sign
    "height",  # where detail lies
    "side",
)
STATISTIC_NAMES = (
    *GLOBAL_STATISTICS,
    *(f"cell {row + 1}.{column + 1}" for row in range(CELLS_PER_SIDE) for column in range(CELLS_PER_SIDE)),
)
"""figures of a picture, in order; a cell's is its luminance against the whole picture's"""
SRGB_TO_LINEAR = srgb_decode(np.arange(256) / 255).astype(np.float32)
LUMINANCE_WEIGHTS = np.array([0.2126, 0.7152, 0.0722], np.float32)
"""what red, green and blue give to luminance, in linear light"""
LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)
"""the same, along the sRGB curve"""


def image_statistics(pictures: NDArray[np.uint8]) -> Float32Array:
    """One row of figures (NAMES) for each picture of (n, channels, height, width)."""
    few = pictures[:, :, :: grid_stride(pictures), :: grid_stride(pictures)]
    side = [size - size % CELLS_PER_SIDE if size >= CELLS_PER_SIDE else size for size in few.shape[2:]]
    few = np.ascontiguousarray(few[:, :3, : side[0], : side[1]])
    lit, cells = color_statistics(few)
    return np.concatenate([lit, tone_statistics(few), detail_statistics(pictures), cells], 1)


def grid_stride(pictures: NDArray[np.uint8]) -> int:
    """Pixels between two points of the grid."""
    return int(max(1, min(pictures.shape[2:]) // GRID_POINTS_PER_SIDE))


def color_statistics(grid_images: NDArray[np.uint8]) -> tuple[Float32Array, Float32Array]:
    """Colour temperature, tint and luminance in linear light; luminance of each cell against the whole."""
    count, channels, height, width = grid_images.shape
    rows, columns = pooling_matrix(height), pooling_matrix(width)
    cells = rows.T @ (SRGB_TO_LINEAR.take(grid_images) @ columns) + 1e-3  # (n, channels, 4, 4)
    red, green, blue = np.log(cells.mean((2, 3))).T[[0, 0, 0] if channels < 3 else [0, 1, 2]]
    seen = np.tensordot(
        cells, LUMINANCE_WEIGHTS if channels == 3 else np.full(channels, 1 / channels, np.float32), (1, 0)
    )
    luminance = np.log(seen.mean((1, 2)))
    whole = np.stack([red - blue, green - (red + blue) / 2, luminance], 1)
    return whole, np.log(seen).reshape(count, -1) - luminance[:, None]


@cache
def pooling_matrix(size: int) -> Float32Array:
    """The matrix by which a line of so many points becomes a mean for each of four cells."""
    owner = np.arange(size) * CELLS_PER_SIDE // size
    cells = (owner[:, None] == np.arange(CELLS_PER_SIDE)).astype(np.float32)
    return np.asarray(cells / np.maximum(cells.sum(0), 1))


def tone_statistics(grid_images: NDArray[np.uint8]) -> Float32Array:
    """Contrast, black point and saturation along the sRGB curve."""
    count, channels, height, width = grid_images.shape
    flat = grid_images.reshape(count, channels, -1)
    grey = LUMA_WEIGHTS @ flat.astype(np.float32) if channels == 3 else flat.mean(1, dtype=np.float32)
    dark = grey.reshape(count, -1, 16).min(2).mean(1) if height * width % 16 == 0 else grey.min(1)
    coloured = (flat.max(1) - flat.min(1)).mean(1, dtype=np.float32)
    return np.asarray(np.log(np.stack([grey.std(1) + 1, dark + 4, coloured + 1], 1)))


def detail_statistics(pictures: NDArray[np.uint8]) -> Float32Array:
    """Detail, roughness, blocks, direction, and where detail lies: from differences of next pixels."""
    plane = pictures[:, min(1, pictures.shape[1] - 1)].astype(np.int16)
    by = grid_stride(pictures)
    here = plane[:, 1:-1:by, 1:-1:by]
    above, below = plane[:, :-2:by, 1:-1:by], plane[:, 2::by, 1:-1:by]
    left, right = plane[:, 1:-1:by, :-2:by], plane[:, 1:-1:by, 2::by]
    bend = np.abs(4 * here - above - below - left - right).astype(np.float32)
    across, down = (np.abs(one).mean((1, 2), dtype=np.float32) for one in (right - left, below - above))
    rows, columns = bend.mean(2), bend.mean(1)
    total = rows.mean(1)
    return np.stack(
        [
            np.log(total + 0.5),
            np.log(np.minimum(bend, MAX_NOISE_LEVELS).mean((1, 2)) + 0.5),
            jpeg_blockiness(plane),
            np.log(across + 0.5) - np.log(down + 0.5),
            (rows * centered_positions(rows.shape[1])).sum(1)
            / (total + 1e-3),  # `@` would round by how many pictures there are
            (columns * centered_positions(columns.shape[1])).sum(1) / (total + 1e-3),
        ],
        1,
    )


@cache
def centered_positions(size: int) -> Float32Array:
    """Places from -1 to 1, as a mean takes them."""
    return np.asarray(np.linspace(-1, 1, size) / size, np.float32)


def jpeg_blockiness(planes: NDArray[np.int16]) -> Float32Array:
    """How much larger steps are between JPEG's blocks than beside, as a logarithm."""
    edge, beside = np.zeros(len(planes), np.float32), np.zeros(len(planes), np.float32)
    for lines in (planes[:, ::3].transpose(0, 2, 1), planes[:, :, ::3]):
        last = (
            lines.shape[1] - lines.shape[1] % JPEG_BLOCK_PIXELS - 1
            if lines.shape[1] % JPEG_BLOCK_PIXELS < 2
            else lines.shape[1] - 2
        )
        ends = np.arange(JPEG_BLOCK_PIXELS - 1, last, JPEG_BLOCK_PIXELS)
        before, end, start, after = (lines[:, ends + offset] for offset in (-1, 0, 1, 2))
        edge += mean_line_difference(end, start)
        beside += (mean_line_difference(before, end) + mean_line_difference(start, after)) / 2
    return np.asarray(np.log(edge + 1) - np.log(beside + 1))


def mean_line_difference(first_lines: NDArray[np.int16], second_lines: NDArray[np.int16]) -> Float32Array:
    """Mean difference of two sets of lines."""
    if not first_lines.size:
        return np.zeros(len(first_lines), np.float32)
    return np.asarray(np.abs(first_lines - second_lines).mean((1, 2), dtype=np.float32))
