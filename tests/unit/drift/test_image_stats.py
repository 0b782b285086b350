import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from equipoise.drift.features.image_stats import GLOBAL_STATISTICS, STATISTIC_NAMES, image_statistics
from equipoise.images.srgb import srgb_encode

PLACE = {name: place for place, name in enumerate(STATISTIC_NAMES)}
CELLS = [PLACE[name] for name in STATISTIC_NAMES if name not in GLOBAL_STATISTICS]


def scene(seed=0, count=3, height=64, width=64):
    """Smooth light of three colours with edges: linear, (count, 3, height, width), from .05 to .45."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0.05, 0.45, (count, 3, -(-height // 8), -(-width // 8)))
    return coarse.repeat(8, 2).repeat(8, 3)[:, :, :height, :width]


def coded(linear):
    return np.rint(srgb_encode(np.clip(linear, 0, 1)) * 255).astype(np.uint8)


def moved(before, after, *names):
    """By how much figures rise, a column a name."""
    change = image_statistics(after) - image_statistics(before)
    return change[:, [PLACE[name] for name in names]]


def by_pil(pictures, change):
    return np.stack([np.array(change(Image.fromarray(one.transpose(1, 2, 0)))).transpose(2, 0, 1) for one in pictures])


def through_jpeg(image, quality):
    held = io.BytesIO()
    image.save(held, "JPEG", quality=quality)
    return Image.open(held)


@pytest.mark.parametrize("gain", [1.1, 1.5, 2.0])
def test_warmer_light_raises_red_over_blue_by_the_logarithm_of_its_gain(gain):
    light = scene()
    found = moved(coded(light), coded(light * np.array([gain, 1, 1 / gain])[:, None, None]), "red over blue", "green")
    np.testing.assert_allclose(found[:, 0], 2 * np.log(gain), atol=0.03)
    np.testing.assert_allclose(found[:, 1], 0, atol=0.02)


def test_green_light_raises_green_and_leaves_red_over_blue():
    light = scene()
    found = moved(coded(light), coded(light * np.array([1, 1.5, 1])[:, None, None]), "green", "red over blue")
    np.testing.assert_allclose(found, np.tile([np.log(1.5), 0], (3, 1)), atol=0.02)


@pytest.mark.parametrize("stops", [-2, -1, 0.5, 1])
def test_exposure_moves_luminance_by_its_stops_and_neither_colour_nor_place(stops):
    light = scene()
    change = image_statistics(coded(light * 2.0**stops)) - image_statistics(coded(light))
    np.testing.assert_allclose(change[:, PLACE["luminance"]], stops * np.log(2), atol=0.03)
    still = [PLACE["red over blue"], PLACE["green"], PLACE["direction"], PLACE["height"], PLACE["side"], *CELLS]
    np.testing.assert_allclose(change[:, still], 0, atol=0.06)


def test_a_grey_picture_has_the_figures_that_one_works_out_by_hand():
    found = image_statistics(np.full((1, 3, 32, 32), 128, np.uint8))[0]
    assert found[PLACE["luminance"]] == pytest.approx(np.log(0.2159 + 1e-3), abs=1e-3)
    assert found[PLACE["contrast"]] == pytest.approx(0, abs=1e-4)
    assert found[PLACE["black point"]] == pytest.approx(np.log(132), abs=1e-5)
    assert found[PLACE["detail"]] == pytest.approx(np.log(0.5)) == found[PLACE["roughness"]]
    others = {"red over blue", "green", "saturation", "blocks", "direction", "height", "side"}
    np.testing.assert_allclose(found[[PLACE[name] for name in others] + CELLS], 0, atol=1e-5)


def test_blur_lowers_detail_and_noise_raises_roughness():
    sharp = coded(scene(1))
    soft = by_pil(sharp, lambda image: image.filter(ImageFilter.GaussianBlur(1.5)))
    assert (moved(sharp, soft, "detail") < -0.3).all()
    rng = np.random.default_rng(0)
    rough = np.clip(sharp + rng.normal(0, 5, sharp.shape), 0, 255).round().astype(np.uint8)
    assert (moved(sharp, rough, "roughness") > 0.5).all()


def test_jpeg_raises_blocks_the_more_the_worse_it_is():
    rng = np.random.default_rng(0)
    slopes = np.linspace(0, 100, 64) + np.linspace(0, 60, 64)[:, None]
    plain = np.clip(slopes + rng.normal(40, 8, (4, 3, 64, 64)), 0, 255).astype(np.uint8)
    found = [moved(plain, by_pil(plain, lambda image, q=q: through_jpeg(image, q)), "blocks") for q in (50, 10)]
    assert (found[0] > 0.02).all() and (found[1] > found[0] + 0.2).all()


def test_steps_at_every_eighth_pixel_are_blocks_and_an_even_slope_is_none_by_hand():
    stairs, even = np.arange(32) // 8 * 10, np.arange(32) * 4
    for line, expected in ((stairs, np.log(11)), (even, 0), (even * 0, 0)):
        for picture in (np.tile(line, (32, 1)), np.tile(line, (32, 1)).T):
            shown = np.broadcast_to(picture, (1, 3, 32, 32)).astype(np.uint8)
            assert image_statistics(shown)[0, PLACE["blocks"]] == pytest.approx(expected, abs=1e-6)


def test_a_quarter_turn_changes_the_sign_of_direction_and_exchanges_places():
    stripes = np.zeros((1, 3, 32, 32))
    stripes[..., ::4] = 0.1
    stripes[:, :, :10] *= 4
    here, there = (
        image_statistics(coded(stripes + 0.1))[0],
        image_statistics(coded(np.rot90(stripes, 1, (2, 3)) + 0.1))[0],
    )
    assert here[PLACE["direction"]] > 0.5
    assert there[PLACE["direction"]] == pytest.approx(-here[PLACE["direction"]], abs=1e-5)
    assert here[PLACE["height"]] < -0.1 and abs(here[PLACE["side"]]) < 0.1
    assert there[PLACE["side"]] == pytest.approx(here[PLACE["height"]], abs=1e-5)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (2, 1), (3, 3)])
def test_a_bright_corner_raises_its_cell_alone(row, column):
    light = scene()
    lit = light.copy()
    lit[:, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] += 0.5
    change = (image_statistics(coded(lit)) - image_statistics(coded(light)))[:, CELLS]
    place = 4 * row + column
    assert (change[:, place] > 0.5).all() and (np.delete(change, place, 1) < 0).all()


@pytest.mark.parametrize(("height", "width"), [(8, 8), (17, 33), (3, 200), (512, 512)])
@pytest.mark.parametrize("channels", [1, 3])
def test_figures_are_finite_whatever_the_picture(channels, height, width):
    rng = np.random.default_rng(0)
    shape = (2, channels, height, width)
    noise = rng.integers(0, 256, shape).astype(np.uint8)
    for pictures in (noise, np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)):
        found = image_statistics(pictures)
        assert found.shape == (2, len(STATISTIC_NAMES)) and found.dtype == np.float32 and np.isfinite(found).all()


def test_one_channel_has_the_figures_of_a_grey_picture_of_three():
    grey = np.random.default_rng(0).integers(0, 256, (4, 1, 40, 40)).astype(np.uint8)
    np.testing.assert_allclose(image_statistics(grey), image_statistics(grey.repeat(3, 1)), atol=1e-3)


@pytest.mark.parametrize("side", [17, 32, 100])
def test_figures_depend_neither_on_other_pictures_nor_on_the_layout_in_memory(side):
    pictures = np.random.default_rng(0).integers(0, 256, (9, 3, side, side)).astype(np.uint8)
    whole = image_statistics(pictures)
    np.testing.assert_array_equal(whole, np.concatenate([image_statistics(one[None]) for one in pictures]))
    np.testing.assert_array_equal(whole[::-1], image_statistics(pictures[::-1]))
    last = np.ascontiguousarray(pictures.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(whole, image_statistics(last))
