"""Rendered images stay what they were when runs, plans and bundles of other days were made from them.

After a change of the renderer that is meant to change images: python -m tests.unit.workloads.test_vending_reference
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SOURCE_ONLY_PRODUCTS, draw_sprites
from equipoise.workloads.vending.renderer import Scene, render_images

REFERENCE_FILE = Path(__file__).with_name("vending_reference.npz")
SCENES = {
    "normal": Scene(),
    "evening": Scene(kelvin=3500, exposure=-0.5, veil=0.05, highlight=0.4),
    "worn lens": Scene(blur=1.5, noise=0.05, jpeg=40),
}
MAX_DIFFERENCE = 2  # levels of 255: processors round differently


def render_reference():
    """Return the sprites of all products, and small images of each scene, in levels of 255."""
    sprites = draw_sprites((*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS), 16)
    levels = {"sprites": np.round(255 * np.clip(sprites, 0, 1)).astype(np.uint8)}
    for name, scene in SCENES.items():
        images = render_images(MACHINE_PRODUCTS, np.arange(100, 120), 7, 64, scene)[0].float()
        levels[name] = F.interpolate(images, 16, mode="area").round().to(torch.uint8).numpy()
    return levels


def test_images_are_those_of_earlier_versions():
    rendered = render_reference()
    with np.load(REFERENCE_FILE) as reference:
        assert rendered.keys() == {*reference}
        for name, levels in rendered.items():
            difference = np.abs(levels.astype(int) - reference[name].astype(int))
            assert difference.max() <= MAX_DIFFERENCE, name


if __name__ == "__main__":
    np.savez_compressed(REFERENCE_FILE, **render_reference())
