"""Each corruption changes images as its name, sign and size say."""

import numpy as np
import pytest
import torch

from equipoise.drift.corruptions import all_corruptions, invert_corruption, rotate_images, zoom_images
from equipoise.images.camera import srgb8_to_linear
from tests.support.drift_data import render_shapes

SIDE = 40


def find_corruptions(cause, detail=None):
    found = [
        corruption
        for corruption in all_corruptions()
        if corruption.cause == cause and detail in (None, corruption.detail)
    ]
    assert found
    return found


def draw_dot(row, column, channels=3):
    images = torch.zeros(1, channels, SIDE, SIDE, dtype=torch.uint8)
    images[:, :, row, column] = 255
    return images


def bright_pixels(images):
    return [tuple(pixel) for pixel in (images[0, 0] > 127).nonzero().tolist()]


def mean_light(images):
    return srgb8_to_linear(images).mean((0, 2, 3))


@pytest.mark.parametrize(("detail", "down", "right"), [("down", 1, 0), ("up", -1, 0), ("right", 0, 1), ("left", 0, -1)])
def test_translation_moves_in_its_direction_only(detail, down, right):
    (corruption,) = find_corruptions("geometry", f"moved {detail}")
    for share in corruption.sizes:
        steps = round(share * SIDE)
        moved = corruption.apply(draw_dot(20, 20), share)
        assert bright_pixels(moved) == [(20 + down * steps, 20 + right * steps)]
        assert moved.shape == (1, 3, SIDE, SIDE)


def test_translation_repeats_the_edge():
    (corruption,) = find_corruptions("geometry", "moved right")
    columns = torch.arange(SIDE, dtype=torch.uint8).expand(1, 3, SIDE, SIDE).contiguous()
    moved = corruption.apply(columns, 0.1)[0, 0, 0]
    assert moved.tolist() == [0, 0, 0, 0, *range(SIDE - 4)]


def test_quarter_turns_are_exact_and_small_turns_go_the_same_way():
    dot = draw_dot(20, 35)
    assert bright_pixels(rotate_images(dot, 90)) == [(SIDE - 1 - 35, 20)]
    assert torch.equal(rotate_images(dot, 180), dot.flip(2, 3))
    assert torch.equal(rotate_images(rotate_images(dot, 90), 270), dot)
    wide = draw_dot(slice(19, 21), slice(33, 37))
    row, column = np.mean(bright_pixels(rotate_images(wide, 30)), 0)
    assert row == pytest.approx(19.5 - 15 * np.sin(np.deg2rad(30)), abs=1)
    assert column == pytest.approx(19.5 + 15 * np.cos(np.deg2rad(30)), abs=1)


def test_zoom_scales_the_image_about_its_centre():
    square = draw_dot(slice(16, 24), slice(16, 24))
    area = int((square[0, 0] > 127).sum())
    for factor in (0.5, 2):
        zoomed = zoom_images(square, factor)
        assert int((zoomed[0, 0] > 127).sum()) == pytest.approx(area * factor**2, rel=0.2)
        assert np.mean(bright_pixels(zoomed), 0) == pytest.approx([19.5, 19.5], abs=0.5)


def test_mirrored_and_upside_down_are_exact():
    dot = draw_dot(3, 7)
    assert bright_pixels(find_corruptions("geometry", "mirrored")[0].apply(dot, 1)) == [(3, SIDE - 1 - 7)]
    assert bright_pixels(find_corruptions("geometry", "upside down")[0].apply(dot, 1)) == [(SIDE - 1 - 3, 7)]


def test_each_corruption_does_nothing_at_its_neutral_size_and_more_at_each_further_one():
    images = render_shapes(12, 1)[0]
    for corruption in all_corruptions():
        if corruption.detail in ("mirrored", "upside down", "red and blue swapped", "turned"):
            continue
        changes = [
            float((corruption.apply(images, size).float() - images.float()).abs().mean())
            for size in (corruption.neutral_size, *corruption.sizes)
        ]
        assert changes[0] < 1.5 or corruption.cause == "compression", corruption
        assert changes == sorted(changes), corruption


def test_light_follows_its_units():
    grey = torch.full((1, 3, SIDE, SIDE), 120, dtype=torch.uint8)
    red, green, blue = (mean_light(grey)).tolist()
    for corruption in find_corruptions("exposure"):
        for stops in (size for size in corruption.sizes if abs(size) <= 1):
            assert mean_light(corruption.apply(grey, stops)).tolist() == pytest.approx([red * 2**stops] * 3, rel=0.03)
            assert ("brighter" in corruption.detail) == (stops > 0)
    for corruption in find_corruptions("tint"):
        for stops in corruption.sizes:
            tinted = mean_light(corruption.apply(grey, stops)).tolist()
            assert tinted == pytest.approx([red, green * 2**stops, blue], rel=0.03)
            assert ("greener" in corruption.detail) == (stops > 0)
    for corruption in find_corruptions("colour temperature"):
        for kelvin in corruption.sizes:
            light = mean_light(corruption.apply(grey, kelvin))
            assert (light[0] > light[2]) == (kelvin < 6500) == ("warmer" in corruption.detail)


def test_white_balance_keeps_green_and_the_product_of_red_and_blue():
    grey = torch.full((1, 3, SIDE, SIDE), 120, dtype=torch.uint8)
    physical, balanced = find_corruptions("colour temperature", "warmer")
    light, usual = mean_light(balanced.apply(grey, 5500)), mean_light(grey)
    assert float(light[1]) == pytest.approx(float(usual[1]), rel=0.01)
    assert float(light[0] * light[2]) == pytest.approx(float(usual[0] * usual[2]), rel=0.03)
    lamp = mean_light(physical.apply(grey, 5500))
    assert float(light[0] / light[2]) == pytest.approx(float(lamp[0] / lamp[2]), rel=0.03)


def test_highlight_is_brightest_where_its_name_says():
    dark = torch.full((1, 3, SIDE, SIDE), 30, dtype=torch.uint8)
    places = set()
    for corruption in find_corruptions("reflection"):
        if corruption.detail == "all over":
            continue
        brightness = corruption.apply(dark, 0.2)[0, 0].double()
        row, column = divmod(int(brightness.argmax()), SIDE)
        down, right = ((place + 0.5) / SIDE * 2 - 1 for place in (row, column))
        assert corruption.detail == f"at {round(down / 0.6) * 0.6:+.1f} down, {round(right / 0.6) * 0.6:+.1f} right"
        places.add((row, column))
    assert len(places) == 9


def test_saturation_and_contrast_scale_distances_from_the_mean():
    images = render_shapes(4, 1)[0].float().mul(0.2).add(100).to(torch.uint8)
    grey = find_corruptions("features", "colours washed out")[0].apply(images, 1)
    assert int((grey.amax(1).int() - grey.amin(1).int()).max()) <= 1
    spread = lambda values: float((values.float() - values.float().mean((1, 2, 3), keepdim=True)).square().mean())  # noqa: E731
    for detail, factor in (("lower", 0.4), ("higher", 2.5)):
        scaled = find_corruptions("contrast", detail)[0].apply(images, factor)
        assert spread(scaled) / spread(images) == pytest.approx(factor**2, rel=0.1)


@pytest.mark.parametrize(
    ("cause", "detail", "value"),
    [
        ("colour temperature", "warmer", 4500.0),
        ("tint", "greener", 0.25),
        ("exposure", "darker", -0.5),
        ("contrast", "lower", 0.6),
        ("reflection", "all over", 0.1),
    ],
)
def test_inverted_corruption_gives_the_images_back(cause, detail, value):
    images = render_shapes(6, 1)[0].float().mul(0.6).add(20).to(torch.uint8)
    changed = find_corruptions(cause, detail)[0].apply(images, value)
    restored = invert_corruption(changed, cause, detail, value)
    error = (restored.float() - images.float()).abs()
    assert float(error.mean()) < 1.5 < float((changed.float() - images.float()).abs().mean())


def test_other_causes_cannot_be_inverted():
    images = render_shapes(2, 1)[0]
    for cause, detail, value in (("blur", "", 1.0), ("reflection", "all over", 1.0), ("reflection", "at +0.0", 0.2)):
        assert invert_corruption(images, cause, detail, value) is None
