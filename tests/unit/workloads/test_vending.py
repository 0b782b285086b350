"""The rendered workload: always the same pictures, with a light that can be turned."""

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

FEW = np.arange(40)


def lit(**dials):
    return render_images(MACHINE_PRODUCTS, FEW, 5, 64, Scene(**dials))[0].double() / 255


def test_seven_of_ten_products_are_new_and_three_are_in_the_source():
    assert (len(MACHINE_PRODUCTS), len(SOURCE_PRODUCTS)) == (10, 24)
    assert {one.name for one in MACHINE_PRODUCTS} & {one.name for one in SOURCE_PRODUCTS} == {
        one.name for one in SHARED_PRODUCTS
    }
    assert len({one.name for one in [*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS]}) == 31


def test_a_picture_belongs_to_its_seed_and_index_in_any_company():
    pictures, labels = render_images(MACHINE_PRODUCTS, FEW, 5, 64)
    for index in (0, 17, 39):
        alone, label = render_images(MACHINE_PRODUCTS, np.array([index]), 5, 64)
        assert torch.equal(alone[0], pictures[index])
        assert int(label) == int(labels[index]) == index % 10
    assert not torch.equal(render_images(MACHINE_PRODUCTS, FEW, 6, 64)[0], pictures)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pictures_do_not_depend_on_threads(threads):
    before = torch.get_num_threads()
    expected = render_images(MACHINE_PRODUCTS, FEW, 5, 50)[0]
    torch.set_num_threads(threads)
    try:
        assert torch.equal(render_images(MACHINE_PRODUCTS, FEW, 5, 50)[0], expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size", [32, 64, 224])
def test_any_size_shows_the_same_scene(size):
    pictures, _ = render_images(SOURCE_PRODUCTS, FEW[:8], 3, size)
    assert pictures.shape == (8, 3, size, size) and pictures.dtype == torch.uint8
    small = torch.nn.functional.interpolate(pictures.float(), 32, mode="area")
    reference = render_images(SOURCE_PRODUCTS, FEW[:8], 3, 32)[0].float()
    assert float((small - reference).abs().mean()) < 8


def test_products_differ_from_each_other():
    looks = np.stack([draw_product(product, 48) for product in [*MACHINE_PRODUCTS, *SOURCE_ONLY_PRODUCTS]]).reshape(
        31, -1
    )
    apart = np.abs(looks[:, None] - looks[None]).mean(-1) + np.eye(31)
    assert apart.min() > 0.005


def test_each_dial_does_what_its_light_does():
    normal = lit()
    assert float(lit(kelvin=4000)[:, 0].mean() / lit(kelvin=4000)[:, 2].mean()) > 1.2 * float(
        normal[:, 0].mean() / normal[:, 2].mean()
    )
    assert float(lit(exposure=-1).mean()) < 0.85 * float(normal.mean())
    assert float(lit(veil=0.1).amin((1, 2, 3)).mean()) > float(normal.amin((1, 2, 3)).mean()) + 0.1
    spot = (lit(highlight=0.5) - normal).mean((0, 1))
    assert float(spot[40:].mean()) > 2 * float(spot[:24].mean()) >= 0
    edges = lambda pictures: float((pictures[..., 1:] - pictures[..., :-1]).abs().mean())  # noqa: E731
    assert edges(lit(blur=1.5)) < 0.8 * edges(normal) < 0.8 * edges(lit(noise=0.1))
    assert 0 < float((lit(jpeg=30) - normal).abs().mean()) < 0.05


def test_linear_light_doubles_with_a_stop():
    dark, bright = (lit(exposure=stops, noise=0) for stops in (-2.0, -1.0))
    middle = (bright > 0.1) & (bright < 0.9)
    linear = lambda values: ((values + 0.055) / 1.055) ** 2.4  # noqa: E731
    assert float((linear(bright[middle]) / linear(dark[middle])).median()) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(("dial", "value"), [("kelvin", 900), ("veil", 1.2), ("jpeg", 0), ("blur", -1), ("noise", 2)])
def test_a_dial_out_of_range_is_refused(dial, value):
    with pytest.raises(ValueError, match=rf"Scene\.{dial} must be from .*, got {value}"):
        Scene(**{dial: value})


def test_splits_are_disjoint_and_balanced():
    made = load_workload(TrainConfig(workload="vending", batch_size=1))
    parts = [made.train, made.validation, made.reference, made.test]
    seen = {part.pictures[i].numpy().tobytes() for part in parts for i in range(len(part))}
    assert len(seen) == sum(map(len, parts))
    for part in parts:
        assert len(set(torch.bincount(part.labels).tolist())) == 1
    assert len(made.train) == 300


def test_a_size_that_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="vending renders images of 32 to 512 pixels per side, got --image-size 8"):
        load_workload(TrainConfig(workload="vending", image_size=8))
