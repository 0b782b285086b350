"""Photographs as a user has them in folders, cut out of the two large ones that come with scikit-learn."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

from equipoise.images.srgb import srgb_decode, srgb_encode

MIN_CROP_PIXELS, MAX_CROP_PIXELS = 96, 200
SIZE = (160, 120)


def load_scenes() -> dict[str, NDArray[np.uint8]]:
    """Load three scenes, one for each class."""
    china, flower = load_sample_images().images
    return {"roof": china[:260], "lawn": china[200:], "flower": flower}


def save_photographs(folder: Path, count: int, seed: int = 0) -> None:
    """Save this many photographs of each class, in a folder of its own."""
    rng = np.random.default_rng(seed)
    for name, scene in load_scenes().items():
        save_crops(folder / name, scene, count, rng)


def save_relit_photographs(folder: Path, count: int, light: NDArray[np.float64], seed: int = 0) -> None:
    """Save this many photographs of each class in one folder, under another light: factors on linear RGB."""
    rng = np.random.default_rng(seed)
    for name, scene in load_scenes().items():
        save_crops(folder, 255 * srgb_encode((srgb_decode(scene / 255) * light).clip(0, 1)), count, rng, name)


def save_crops(
    folder: Path, scene: NDArray[np.generic], count: int, rng: np.random.Generator, prefix: str = "IMG"
) -> None:
    """Save square pieces of a scene, each from another place and at another scale."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(count):
        side = int(rng.integers(MIN_CROP_PIXELS, MAX_CROP_PIXELS))
        top, left = (int(rng.integers(0, length - side)) for length in scene.shape[:2])
        piece = scene[top : top + side, left : left + side].clip(0, 255).astype(np.uint8)
        Image.fromarray(piece).resize(SIZE).save(folder / f"{prefix}_{101 + index:04}.jpg", quality=88)


def write_plain_photographs(folder: Path, color: tuple[int, int, int], count: int, rng: np.random.Generator) -> None:
    """Write photographs of one colour in several sizes and formats."""
    folder.mkdir(parents=True)
    for i in range(count):
        width, height = rng.integers(20, 90, 2)
        Image.new("RGB", (width, height), color).save(folder / f"{i}.{('jpg', 'png', 'webp')[i % 3]}")
