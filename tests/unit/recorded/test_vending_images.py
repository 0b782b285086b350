"""Rendered images stay what they were when runs and bundles of other days were made from them."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from equipoise.workloads.vending.products import MACHINE_PRODUCTS, SOURCE_ONLY_PRODUCTS, draw_sprites
from equipoise.workloads.vending.renderer import Scene, render_images
from tests.support.recorded import assert_as_recorded

SCENES = {
    "normal": Scene(),
    "evening": Scene(kelvin=3500, exposure=-0.5, veil=0.05, highlight=0.4),
    "worn-lens": Scene(blur=1.5, noise=0.05, jpeg=40),
}
MAX_DIFFERENCE = 2  # levels of 255


def test_sprites_of_all_products_are_as_recorded():
    sprites = draw_sprites((*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS), 16)
    levels = np.round(255 * np.clip(sprites, 0, 1)).astype(np.uint8)
    assert_as_recorded("vending-sprites", {"levels": levels}, rtol=0, atol=MAX_DIFFERENCE)


@pytest.mark.parametrize("name", SCENES)
def test_images_of_a_scene_are_as_recorded(name):
    images = render_images(MACHINE_PRODUCTS, np.arange(100, 120), 7, 64, SCENES[name])[0].float()
    levels = F.interpolate(images, 16, mode="area").round().to(torch.uint8).numpy()
    assert_as_recorded(f"vending-{name}", {"levels": levels}, rtol=0, atol=MAX_DIFFERENCE)
