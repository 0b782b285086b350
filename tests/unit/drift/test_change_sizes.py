"""The size of a named change is estimated with its interval, and inverting it restores the images."""

import numpy as np
import pytest
import torch

from equipoise.drift.corruptions import invert_corruption
from equipoise.images.camera import srgb8_to_linear
from tests.support.image_changes import (
    build_brightness_transform,
    build_contrast_transform,
    build_jpeg_transform,
    build_lamp_transform,
    build_linear_transform,
    build_noise_transform,
    build_tint_transform,
    build_veil_transform,
    build_window,
    diagnose_images,
    render_clean_images,
)


@pytest.mark.parametrize("kelvin", [3500, 5000, 9000, 12000])
def test_colour_temperature_is_estimated_within_a_tenth(kelvin):
    effect = diagnose_images(build_lamp_transform(kelvin)(render_clean_images())).effects[0]
    assert effect.value == pytest.approx(kelvin, rel=0.1) and effect.unit == "K"
    assert effect.detail == ("warmer" if kelvin < 6500 else "cooler")


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.2])  # with more light, red no longer fits into eight bits
def test_exposure_is_estimated_in_stops_within_a_tenth(factor):
    clean, corrupted = render_clean_images(), build_brightness_transform(factor)(render_clean_images())
    stops = torch.log2(srgb8_to_linear(corrupted).mean() / srgb8_to_linear(clean).mean())
    effect = diagnose_images(corrupted).effects[0]
    assert effect.value == pytest.approx(float(stops), rel=0.1) and effect.unit == "stops"


TRANSFORMS_AND_SIZES = {
    "colour temperature": (build_lamp_transform(4500), 4500),
    "exposure": (build_linear_transform(lambda linear: linear * 2**-0.6), -0.6),
    "tint": (build_tint_transform(0.3), 0.3),
    "contrast": (build_contrast_transform(0.7), 0.7),
    "reflection": (build_veil_transform(0.1), 0.1),
    "noise": (build_noise_transform(10), 10),
    "compression": (build_jpeg_transform(40), 40),
}


@pytest.mark.parametrize("cause", TRANSFORMS_AND_SIZES)
def test_interval_usually_contains_the_true_size(cause):
    transform, true_size = TRANSFORMS_AND_SIZES[cause]
    effects = [diagnose_images(transform(render_clean_images(seed))).effects[0] for seed in range(700, 720)]
    assert {effect.cause for effect in effects} == {cause}
    is_inside = [effect.low <= true_size <= effect.high for effect in effects]
    assert np.mean(is_inside) >= 0.75 and all(effect.low <= effect.value <= effect.high for effect in effects)


@pytest.mark.parametrize("cause", [cause for cause in TRANSFORMS_AND_SIZES if cause not in ("noise", "compression")])
def test_inverting_the_cause_restores_the_features(cause):
    transform, _ = TRANSFORMS_AND_SIZES[cause]
    corrupted = transform(render_clean_images())
    effect = diagnose_images(corrupted).effects[0]
    restored = invert_corruption(corrupted, cause, effect.detail, effect.value)
    before, after = (
        float(np.linalg.norm(build_window(images).feature_shift().weighted_scores)) for images in (corrupted, restored)
    )
    clean = float(np.linalg.norm(build_window(render_clean_images()).feature_shift().weighted_scores))
    assert after < 0.5 * before and after < clean + 0.4
    assert diagnose_images(restored).effects == ()


@pytest.mark.parametrize("cause", ["blur", "noise", "compression", "geometry"])
def test_corruption_that_loses_information_is_not_inverted(cause):
    assert invert_corruption(render_clean_images(count=2), cause, "", 1.0) is None
    assert invert_corruption(render_clean_images(count=2), "reflection", "at -0.6 down, -0.6 right", 0.5) is None
