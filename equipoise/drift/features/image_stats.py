"""Statistics of the light, focus and framing of an image: few numbers that show which of them changed.

Images are sampled on a grid of about 32 points a side, whatever their size, so that a statistic costs microseconds.
Logarithms make a change of light add the same amount to every image, whatever its content.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from equipoise.images.srgb import LUMA_WEIGHTS, srgb_decode
from equipoise.type_aliases import Float32Array

GRID_POINTS_PER_SIDE = 32  # of the grid on which an image is sampled
CELLS_PER_SIDE = 4  # cells of which the luminance is measured: a reflection is local
JPEG_BLOCK_PIXELS = 8  # side of the blocks that JPEG compresses independently
MAX_NOISE_LEVELS = 8  # larger differences are content, not noise
COLOR_STATISTICS = (
    "red over blue",  # colour temperature of the light
    "green",  # tint of the light
    "luminance",
)
TONE_STATISTICS = ("contrast", "black point", "saturation")
DETAIL_STATISTICS = (
    "detail",  # falls when out of focus, rises with noise
    "roughness",  # of smooth areas: rises with noise, falls with compression
    "blocks",
    "direction",  # of detail: changes sign when the image is turned by 90 degrees
    "height",  # vertical position of detail
    "side",  # horizontal position of detail
)
GLOBAL_STATISTICS = (*COLOR_STATISTICS, *TONE_STATISTICS, *DETAIL_STATISTICS)
STATISTIC_NAMES = (
    *GLOBAL_STATISTICS,
    *(f"cell {row + 1}.{column + 1}" for row in range(CELLS_PER_SIDE) for column in range(CELLS_PER_SIDE)),
)
"""statistics of an image, in order; that of a cell is its luminance relative to the whole image

A further statistic is a name at the end of one of these tuples and a column at the end of what the function of the
same name returns: its chart, alarm threshold and row in every verdict follow.
"""
SRGB_TO_LINEAR = srgb_decode(np.arange(256) / 255).astype(np.float32)
LUMINANCE_WEIGHTS = np.array([0.2126, 0.7152, 0.0722], np.float32)
"""weights of red, green and blue in luminance, in linear light"""


def image_statistics(pictures: NDArray[np.uint8]) -> Float32Array:
    """Return (n, statistics in the order of STATISTIC_NAMES) of images (n, channels, height, width)."""
    grid = pictures[:, :, :: grid_stride(pictures), :: grid_stride(pictures)]
    side = [size - size % CELLS_PER_SIDE if size >= CELLS_PER_SIDE else size for size in grid.shape[2:]]
    grid = np.ascontiguousarray(grid[:, :3, : side[0], : side[1]])
    color, cells = color_statistics(grid)
    return np.concatenate([color, tone_statistics(grid), detail_statistics(pictures), cells], 1)


def grid_stride(pictures: NDArray[np.uint8]) -> int:
    """Return the distance between two points of the grid in pixels."""
    return int(max(1, min(pictures.shape[2:]) // GRID_POINTS_PER_SIDE))


def color_statistics(grid_images: NDArray[np.uint8]) -> tuple[Float32Array, Float32Array]:
    """Return the COLOR_STATISTICS, from linear light, and the relative luminance of each cell."""
    count, channels, height, width = grid_images.shape
    rows, columns = pooling_matrix(height), pooling_matrix(width)
    cells = rows.T @ (SRGB_TO_LINEAR.take(grid_images) @ columns) + 1e-3  # (n, channels, 4, 4)
    red, green, blue = np.log(cells.mean((2, 3))).T[[0, 0, 0] if channels < 3 else [0, 1, 2]]
    cell_luminance = np.tensordot(
        cells, LUMINANCE_WEIGHTS if channels == 3 else np.full(channels, 1 / channels, np.float32), (1, 0)
    )
    luminance = np.log(cell_luminance.mean((1, 2)))
    color = np.stack([red - blue, green - (red + blue) / 2, luminance], 1)
    return color, np.log(cell_luminance).reshape(count, -1) - luminance[:, None]


@cache
def pooling_matrix(size: int) -> Float32Array:
    """Build the matrix (size, 4) that averages a line of so many points over each of four cells."""
    owner = np.arange(size) * CELLS_PER_SIDE // size
    cells = (owner[:, None] == np.arange(CELLS_PER_SIDE)).astype(np.float32)
    return np.asarray(cells / np.maximum(cells.sum(0), 1))


def tone_statistics(grid_images: NDArray[np.uint8]) -> Float32Array:
    """Return the TONE_STATISTICS, along the sRGB curve."""
    count, channels, height, width = grid_images.shape
    flat = grid_images.reshape(count, channels, -1)
    grey = LUMA_WEIGHTS.astype("f4") @ flat.astype(np.float32) if channels == 3 else flat.mean(1, dtype=np.float32)
    dark = grey.reshape(count, -1, 16).min(2).mean(1) if height * width % 16 == 0 else grey.min(1)
    coloured = (flat.max(1) - flat.min(1)).mean(1, dtype=np.float32)
    return np.asarray(np.log(np.stack([grey.std(1) + 1, dark + 4, coloured + 1], 1)))


def detail_statistics(pictures: NDArray[np.uint8]) -> Float32Array:
    """Return the DETAIL_STATISTICS, from differences of adjacent pixels."""
    plane = pictures[:, min(1, pictures.shape[1] - 1)].astype(np.int16)
    stride = grid_stride(pictures)
    here = plane[:, 1:-1:stride, 1:-1:stride]
    above, below = plane[:, :-2:stride, 1:-1:stride], plane[:, 2::stride, 1:-1:stride]
    left, right = plane[:, 1:-1:stride, :-2:stride], plane[:, 1:-1:stride, 2::stride]
    laplacian = np.abs(4 * here - above - below - left - right).astype(np.float32)
    across, down = (np.abs(difference).mean((1, 2), dtype=np.float32) for difference in (right - left, below - above))
    rows, columns = laplacian.mean(2), laplacian.mean(1)
    total = rows.mean(1)
    # sums of products: `@` would round differently for another number of images
    return np.stack(
        [
            np.log(total + 0.5),
            np.log(np.minimum(laplacian, MAX_NOISE_LEVELS).mean((1, 2)) + 0.5),
            jpeg_blockiness(plane),
            np.log(across + 0.5) - np.log(down + 0.5),
            (rows * centered_positions(rows.shape[1])).sum(1) / (total + 1e-3),
            (columns * centered_positions(columns.shape[1])).sum(1) / (total + 1e-3),
        ],
        1,
    )


@cache
def centered_positions(size: int) -> Float32Array:
    """Return positions from -1 to 1 divided by their number, as weights of a mean position."""
    return np.asarray(np.linspace(-1, 1, size) / size, np.float32)


def jpeg_blockiness(planes: NDArray[np.int16]) -> Float32Array:
    """Return how much larger pixel differences are across JPEG block edges than beside them, as a log ratio."""
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
    """Return (n,) the mean absolute difference of two sets of lines."""
    if not first_lines.size:
        return np.zeros(len(first_lines), np.float32)
    return np.asarray(np.abs(first_lines - second_lines).mean((1, 2), dtype=np.float32))
