"""Tests of the rendered vending workload: reproducible images with adjustable light and camera."""

import numpy as np
import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from equipoise.workloads.vending.products import (
    MACHINE_PRODUCTS,
    SHARED_PRODUCTS,
    SOURCE_ONLY_PRODUCTS,
    SOURCE_PRODUCTS,
    draw_product,
)
from equipoise.workloads.vending.renderer import Scene, render_images
from tests.support.errors import raises_code

IMAGE_INDICES = np.arange(40)


def render_scene(**settings):
    return render_images(MACHINE_PRODUCTS, IMAGE_INDICES, 5, 64, Scene(**settings))[0].double() / 255


def test_three_of_ten_machine_products_are_in_the_source():
    assert (len(MACHINE_PRODUCTS), len(SOURCE_PRODUCTS)) == (10, 24)
    assert {product.name for product in MACHINE_PRODUCTS} & {product.name for product in SOURCE_PRODUCTS} == {
        product.name for product in SHARED_PRODUCTS
    }
    assert len({product.name for product in [*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS]}) == 31


def test_image_depends_only_on_its_seed_and_index():
    images, labels = render_images(MACHINE_PRODUCTS, IMAGE_INDICES, 5, 64)
    for index in (0, 17, 39):
        single_image, label = render_images(MACHINE_PRODUCTS, np.array([index]), 5, 64)
        assert torch.equal(single_image[0], images[index])
        assert int(label) == int(labels[index]) == index % 10
    assert not torch.equal(render_images(MACHINE_PRODUCTS, IMAGE_INDICES, 6, 64)[0], images)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_images_do_not_depend_on_the_number_of_threads(threads):
    previous_threads = torch.get_num_threads()
    expected = render_images(MACHINE_PRODUCTS, IMAGE_INDICES, 5, 50)[0]
    torch.set_num_threads(threads)
    try:
        assert torch.equal(render_images(MACHINE_PRODUCTS, IMAGE_INDICES, 5, 50)[0], expected)
    finally:
        torch.set_num_threads(previous_threads)


@pytest.mark.parametrize("size", [32, 64, 224])
def test_every_size_shows_the_same_scene(size):
    images, _ = render_images(SOURCE_PRODUCTS, IMAGE_INDICES[:8], 3, size)
    assert images.shape == (8, 3, size, size) and images.dtype == torch.uint8
    downscaled = torch.nn.functional.interpolate(images.float(), 32, mode="area")
    reference = render_images(SOURCE_PRODUCTS, IMAGE_INDICES[:8], 3, 32)[0].float()
    assert float((downscaled - reference).abs().mean()) < 8


def test_products_differ_from_each_other():
    sprites = np.stack([draw_product(product, 48) for product in [*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS]]).reshape(
        31, -1
    )
    distances = np.abs(sprites[:, None] - sprites[None]).mean(-1) + np.eye(31)
    assert distances.min() > 0.005


def test_each_scene_setting_has_its_effect():
    normal = render_scene()
    assert float(render_scene(kelvin=4000)[:, 0].mean() / render_scene(kelvin=4000)[:, 2].mean()) > 1.2 * float(
        normal[:, 0].mean() / normal[:, 2].mean()
    )
    assert float(render_scene(exposure=-1).mean()) < 0.85 * float(normal.mean())
    assert float(render_scene(veil=0.1).amin((1, 2, 3)).mean()) > float(normal.amin((1, 2, 3)).mean()) + 0.1
    spot = (render_scene(highlight=0.5) - normal).mean((0, 1))
    assert float(spot[40:].mean()) > 2 * float(spot[:24].mean()) >= 0
    edge_strength = lambda images: float((images[..., 1:] - images[..., :-1]).abs().mean())  # noqa: E731
    assert (
        edge_strength(render_scene(blur=1.5))
        < 0.8 * edge_strength(normal)
        < 0.8 * edge_strength(render_scene(noise=0.1))
    )
    assert 0 < float((render_scene(jpeg=30) - normal).abs().mean()) < 0.05


def test_one_stop_of_exposure_doubles_linear_light():
    dark, bright = (render_scene(exposure=stops, noise=0) for stops in (-2.0, -1.0))
    is_midtone = (bright > 0.1) & (bright < 0.9)
    to_linear = lambda values: ((values + 0.055) / 1.055) ** 2.4  # noqa: E731
    assert float((to_linear(bright[is_midtone]) / to_linear(dark[is_midtone])).median()) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("setting", "value"), [("kelvin", 900), ("veil", 1.2), ("jpeg", 0), ("blur", -1), ("noise", 2)]
)
def test_scene_setting_out_of_range_is_refused(setting, value):
    with raises_code("option-range", f"Scene.{setting}", value):
        Scene(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "low", "high"),
    [
        ("kelvin", 1500, 25000),
        ("exposure", -6, 6),
        ("veil", 0, 1),
        ("highlight", 0, 10),
        ("blur", 0, 8),
        ("noise", 0, 1),
        ("jpeg", 1, 100),
    ],
)
def test_scene_settings_are_limited(setting, low, high):
    for value in (low, high):
        assert getattr(Scene(**{setting: value}), setting) == value
    for value in (low - 0.01, high + 0.01):
        with raises_code("option-range", f"Scene.{setting} must be from {low} to {high}, got {value}"):
            Scene(**{setting: value})


def test_splits_are_disjoint_and_balanced():
    workload = load_workload(TrainConfig(workload="vending", batch_size=1))
    splits = [workload.train, workload.validation, workload.reference, workload.test]
    unique_images = {split.inputs[i].numpy().tobytes() for split in splits for i in range(len(split))}
    assert len(unique_images) == sum(map(len, splits))
    for split in splits:
        assert len(set(torch.bincount(split.targets).tolist())) == 1
    assert len(workload.train) == 300


@pytest.mark.parametrize("size", [8, 31, 513])
def test_image_size_out_of_range_is_refused(size):
    with raises_code("option-range", f"--image-size {size}"):
        load_workload(TrainConfig(workload="vending", image_size=size))
