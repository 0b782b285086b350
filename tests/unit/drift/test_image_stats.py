import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from equipoise.drift.features.image_schema import describe_image_statistic
from equipoise.drift.features.image_stats import GLOBAL_STATISTICS, STATISTIC_NAMES, image_statistics
from equipoise.images.srgb import srgb_encode

STATISTIC_INDEX = {name: index for index, name in enumerate(STATISTIC_NAMES)}
CELL_INDICES = [STATISTIC_INDEX[name] for name in STATISTIC_NAMES if name not in GLOBAL_STATISTICS]


def build_scene(seed=0, count=3, height=64, width=64):
    """Return squares of coloured light with sharp edges: linear, (count, 3, height, width), from 0.05 to 0.45."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0.05, 0.45, (count, 3, -(-height // 8), -(-width // 8)))
    return coarse.repeat(8, 2).repeat(8, 3)[:, :, :height, :width]


def encode_srgb8(linear):
    return np.rint(srgb_encode(np.clip(linear, 0, 1)) * 255).astype(np.uint8)


def compute_change(before, after, *names):
    """Return by how much the named statistics rise, (images, names)."""
    change = image_statistics(after) - image_statistics(before)
    return change[:, [STATISTIC_INDEX[name] for name in names]]


def apply_with_pil(images, transform):
    return np.stack(
        [np.array(transform(Image.fromarray(image.transpose(1, 2, 0)))).transpose(2, 0, 1) for image in images]
    )


def compress_as_jpeg(image, quality):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


@pytest.mark.parametrize("gain", [1.1, 1.5, 2.0])
def test_warmer_light_raises_red_over_blue_by_the_logarithm_of_its_gain(gain):
    light = build_scene()
    change = compute_change(
        encode_srgb8(light),
        encode_srgb8(light * np.array([gain, 1, 1 / gain])[:, None, None]),
        "red over blue",
        "green",
    )
    np.testing.assert_allclose(change[:, 0], 2 * np.log(gain), atol=0.03)
    np.testing.assert_allclose(change[:, 1], 0, atol=0.02)


def test_green_light_raises_green_and_leaves_red_over_blue():
    light = build_scene()
    change = compute_change(
        encode_srgb8(light), encode_srgb8(light * np.array([1, 1.5, 1])[:, None, None]), "green", "red over blue"
    )
    np.testing.assert_allclose(change, np.tile([np.log(1.5), 0], (3, 1)), atol=0.02)


@pytest.mark.parametrize("stops", [-2, -1, 0.5, 1])
def test_exposure_raises_luminance_by_its_stops_and_leaves_colour_and_position(stops):
    light = build_scene()
    change = image_statistics(encode_srgb8(light * 2.0**stops)) - image_statistics(encode_srgb8(light))
    np.testing.assert_allclose(change[:, STATISTIC_INDEX["luminance"]], stops * np.log(2), atol=0.03)
    unchanged = [
        STATISTIC_INDEX["red over blue"],
        STATISTIC_INDEX["green"],
        STATISTIC_INDEX["direction"],
        STATISTIC_INDEX["height"],
        STATISTIC_INDEX["side"],
        *CELL_INDICES,
    ]
    np.testing.assert_allclose(change[:, unchanged], 0, atol=0.06)


def test_grey_image_has_the_statistics_computed_by_hand():
    statistics = image_statistics(np.full((1, 3, 32, 32), 128, np.uint8))[0]
    assert statistics[STATISTIC_INDEX["luminance"]] == pytest.approx(np.log(0.2159 + 1e-3), abs=1e-3)
    assert statistics[STATISTIC_INDEX["contrast"]] == pytest.approx(0, abs=1e-4)
    assert statistics[STATISTIC_INDEX["black point"]] == pytest.approx(np.log(132), abs=1e-5)
    assert (
        statistics[STATISTIC_INDEX["detail"]] == pytest.approx(np.log(0.5)) == statistics[STATISTIC_INDEX["roughness"]]
    )
    zero_names = {"red over blue", "green", "saturation", "blocks", "direction", "height", "side"}
    np.testing.assert_allclose(statistics[[STATISTIC_INDEX[name] for name in zero_names] + CELL_INDICES], 0, atol=1e-5)


def test_blur_lowers_detail_and_noise_raises_roughness():
    sharp = encode_srgb8(build_scene(1))
    blurred = apply_with_pil(sharp, lambda image: image.filter(ImageFilter.GaussianBlur(1.5)))
    assert (compute_change(sharp, blurred, "detail") < -0.3).all()
    rng = np.random.default_rng(0)
    noisy = np.clip(sharp + rng.normal(0, 5, sharp.shape), 0, 255).round().astype(np.uint8)
    assert (compute_change(sharp, noisy, "roughness") > 0.5).all()


def test_jpeg_raises_blocks_more_at_lower_quality():
    rng = np.random.default_rng(0)
    slopes = np.linspace(0, 100, 64) + np.linspace(0, 60, 64)[:, None]
    images = np.clip(slopes + rng.normal(40, 8, (4, 3, 64, 64)), 0, 255).astype(np.uint8)
    changes = [
        compute_change(images, apply_with_pil(images, lambda image, q=q: compress_as_jpeg(image, q)), "blocks")
        for q in (50, 10)
    ]
    assert (changes[0] > 0.02).all() and (changes[1] > changes[0] + 0.2).all()


def test_steps_at_every_eighth_pixel_are_blocks_and_an_even_slope_is_not():
    stairs, slope = np.arange(32) // 8 * 10, np.arange(32) * 4
    for line, expected in ((stairs, np.log(11)), (slope, 0), (slope * 0, 0)):
        for plane in (np.tile(line, (32, 1)), np.tile(line, (32, 1)).T):
            images = np.broadcast_to(plane, (1, 3, 32, 32)).astype(np.uint8)
            assert image_statistics(images)[0, STATISTIC_INDEX["blocks"]] == pytest.approx(expected, abs=1e-6)


def test_quarter_turn_changes_the_sign_of_direction_and_swaps_height_and_side():
    stripes = np.zeros((1, 3, 32, 32))
    stripes[..., ::4] = 0.1
    stripes[:, :, :10] *= 4
    upright, turned = (
        image_statistics(encode_srgb8(stripes + 0.1))[0],
        image_statistics(encode_srgb8(np.rot90(stripes, 1, (2, 3)) + 0.1))[0],
    )
    assert upright[STATISTIC_INDEX["direction"]] > 0.5
    assert turned[STATISTIC_INDEX["direction"]] == pytest.approx(-upright[STATISTIC_INDEX["direction"]], abs=1e-5)
    assert upright[STATISTIC_INDEX["height"]] < -0.1 and abs(upright[STATISTIC_INDEX["side"]]) < 0.1
    assert turned[STATISTIC_INDEX["side"]] == pytest.approx(upright[STATISTIC_INDEX["height"]], abs=1e-5)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (2, 1), (3, 3)])
def test_bright_cell_raises_its_own_statistic_only(row, column):
    light = build_scene()
    lit = light.copy()
    lit[:, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 0.5
    change = (image_statistics(encode_srgb8(lit)) - image_statistics(encode_srgb8(light)))[:, CELL_INDICES]
    cell = 4 * row + column
    assert (change[:, cell] > 0.5).all() and (np.delete(change, cell, 1) < 0).all()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (17, 33), (3, 200), (512, 512)])
@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_are_finite_for_any_image(channels, height, width):
    rng = np.random.default_rng(0)
    shape = (2, channels, height, width)
    noise = rng.integers(0, 256, shape).astype(np.uint8)
    for images in (noise, np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)):
        statistics = image_statistics(images)
        assert (
            statistics.shape == (2, len(STATISTIC_NAMES))
            and statistics.dtype == np.float32
            and np.isfinite(statistics).all()
        )


def test_image_of_one_channel_has_the_statistics_of_a_grey_colour_image():
    grey = np.random.default_rng(0).integers(0, 256, (4, 1, 40, 40)).astype(np.uint8)
    np.testing.assert_allclose(image_statistics(grey), image_statistics(grey.repeat(3, 1)), atol=1e-3)


@pytest.mark.parametrize("side", [17, 32, 100])
def test_statistics_do_not_depend_on_other_images_or_on_the_layout_in_memory(side):
    images = np.random.default_rng(0).integers(0, 256, (9, 3, side, side)).astype(np.uint8)
    expected = image_statistics(images)
    np.testing.assert_array_equal(expected, np.concatenate([image_statistics(image[None]) for image in images]))
    np.testing.assert_array_equal(expected[::-1], image_statistics(images[::-1]))
    channels_last = np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(expected, image_statistics(channels_last))


def test_light_and_colour_are_told_in_stops_and_places_in_parts_of_the_image():
    for name in STATISTIC_NAMES:
        statistic = describe_image_statistic(name)
        is_light = name in ("red over blue", "green", "luminance") or name.startswith("cell")
        unit = "of half the image" if name in ("height", "side") else "stops" if is_light else "times"
        assert (statistic.name, statistic.unit) == (name, unit)
        assert statistic.unit_factor * np.log(2) == pytest.approx(1.0 if is_light else np.log(2))
