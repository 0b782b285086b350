"""Rendered shelves: boxes are around what is seen, pictures depend on their index alone, and a detector learns them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from equipoise.workloads.detection.shelf_renderer import (
    MIN_VISIBLE_SHARE,
    draw_rails,
    draw_shelf_uniforms,
    render_shelves,
    stack_products,
)
from equipoise.workloads.vending.products import MACHINE_PRODUCTS
from equipoise.workloads.vending.renderer import Scene
from tests.support.errors import raises_code

PRODUCTS, SIZE = tuple(MACHINE_PRODUCTS), 96
INDICES = np.arange(24)


def render_linear(draws, slots):
    return draw_rails(stack_products(PRODUCTS, draws, slots, SIZE)[0], draws, SIZE)


def test_boxes_are_around_the_pixels_that_change_when_a_product_is_taken_away():
    draws, slots = draw_shelf_uniforms(INDICES, 5)
    _, boxes = render_shelves(MACHINE_PRODUCTS, INDICES, 5, SIZE)
    full = render_linear(draws, slots)
    checked = 0
    for slot in range(6):
        without = [dict(values) for values in slots]
        without[slot]["filled"] = np.ones_like(without[slot]["filled"])
        changed = ((full - render_linear(draws, without)).abs().amax(1) > 0.004).numpy()
        for picture in INDICES:
            label, x, y, width, height, crowd = boxes[picture, slot].tolist()
            rows, columns = np.nonzero(changed[picture])
            if label < 0:
                assert len(rows) < 4 * MIN_VISIBLE_SHARE * 900
                continue
            assert label == int(slots[slot]["product"][picture] * 10) and crowd == 0
            extent = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            assert np.abs(extent - [x, y, x + width, y + height]).max() <= 2  # a border may have the wall's colour
            checked += 1
    assert 60 < checked < 130


def test_pictures_depend_on_their_index_alone():
    whole, boxes = render_shelves(MACHINE_PRODUCTS, np.arange(40), 5, 48)
    part, part_boxes = render_shelves(MACHINE_PRODUCTS, np.arange(30, 40), 5, 48)
    assert torch.equal(whole[30:], part) and torch.equal(boxes[30:], part_boxes)
    assert not torch.equal(whole[:8], render_shelves(MACHINE_PRODUCTS, np.arange(8), 6, 48)[0])


def test_light_changes_pictures_and_no_boxes():
    plain, boxes = render_shelves(MACHINE_PRODUCTS, INDICES, 5, 48)
    warm, warm_boxes = render_shelves(MACHINE_PRODUCTS, INDICES, 5, 48, Scene(kelvin=3000))
    assert torch.equal(boxes, warm_boxes)
    assert (warm[:, 0].float().mean() / warm[:, 2].float().mean()) > 1.2 * plain[:, 0].float().mean() / plain[
        :, 2
    ].float().mean()


def test_boxes_lie_in_the_picture_and_four_products_stand_on_a_shelf():
    workload = load_workload(TrainConfig(workload="shelf", image_size=48))
    targets = torch.cat([split.targets for split in (workload.train, workload.validation, workload.reference)])
    used = targets[targets[..., 0] >= 0]
    assert (used[:, 1:3] >= 0).all() and (used[:, 1:3] + used[:, 3:5] <= 48).all() and (used[:, 3:5] > 0).all()
    assert set(used[:, 0].tolist()) == set(range(10)) and not used[:, 5].any()
    assert 3.8 < len(used) / len(targets) < 4.6
    firsts = [getattr(workload, name).inputs[0] for name in ("train", "validation", "reference", "test")]
    assert not any(torch.equal(firsts[i], firsts[j]) for i in range(4) for j in range(i))


@pytest.mark.parametrize("size", [40, 0x1000, 97])
def test_other_sizes_are_refused(size):
    with raises_code("option-range", size):
        load_workload(TrainConfig(workload="shelf", image_size=size))


@pytest.mark.slow
def test_detector_finds_nine_of_ten_products_after_2400_examples():
    from equipoise.boxes.mean_average_precision import compute_precision

    config = TrainConfig(workload="shelf", batch_size=16, max_examples=2400, eval_every=2400, target=1.0)
    training = Training(config, load_workload(config))
    list(training.laps())
    split = training.workload.test
    with torch.no_grad():
        inputs = training.workload.input_transform(torch.device("cpu"), torch.float32)(split.inputs)
        rows = training.workload.metric(training.model.eval()(inputs), split.targets)
    precision = compute_precision(rows.numpy())
    assert precision.at_50 >= 0.9 and precision.overall >= 0.5


def test_pictures_are_scaled_by_the_mean_and_the_spread_of_a_model():
    workload = replace(load_workload(TrainConfig(workload="shelf")), mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    transform = workload.input_transform(torch.device("cpu"), torch.float64)
    pictures = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 3, 1).expand(1, 3, 3, 1)
    expected = [[-1.0, -0.6, 1.0], [-1.0, -0.2, 3.0], [0.0, 0.1, 0.5]]
    torch.testing.assert_close(transform(pictures)[0, :, :, 0], torch.tensor(expected, dtype=torch.float64))
