import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as torchvision_functional

from equipoise.images.color_jitter import apply_color_jitter, hue_matrices
from equipoise.images.srgb import LUMA_WEIGHTS
from tests.support.errors import raises_code

NEUTRAL_FACTORS = {"brightness": np.ones(1), "contrast": np.ones(1), "saturation": np.ones(1), "hue": np.zeros(1)}


def generate_image(channels=3):
    return torch.rand(1, channels, 12, 12, generator=torch.manual_seed(0)) * 0.5 + 0.25


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_factor_matches_torchvision(name, factor):
    adjusted = apply_color_jitter(generate_image(), **NEUTRAL_FACTORS | {name: np.array([factor])}).clamp(0, 1)
    reference = getattr(torchvision_functional, f"adjust_{name}")(generate_image(), factor)
    torch.testing.assert_close(adjusted, reference, rtol=0, atol=2e-3)  # torchvision's grey weights have four digits


@pytest.mark.parametrize("name", ["brightness", "contrast"])
def test_factor_matches_torchvision_on_grey_images(name):
    adjusted = apply_color_jitter(generate_image(1), **NEUTRAL_FACTORS | {name: np.array([0.7])}).clamp(0, 1)
    torch.testing.assert_close(
        adjusted, getattr(torchvision_functional, f"adjust_{name}")(generate_image(1), 0.7), rtol=0, atol=2e-3
    )


def test_hue_rotation_keeps_grey_and_luma():
    turns = np.array([0.1, 0.5])
    matrices = hue_matrices(turns)
    np.testing.assert_allclose(matrices @ np.ones(3), 1, atol=1e-9)
    np.testing.assert_allclose(LUMA_WEIGHTS @ matrices, np.tile(LUMA_WEIGHTS, (2, 1)), atol=1e-9)
    np.testing.assert_allclose(matrices[1] @ matrices[1], np.eye(3), atol=1e-9)  # two half turns are the identity


def test_neutral_factors_change_nothing():
    torch.testing.assert_close(
        apply_color_jitter(generate_image(), **NEUTRAL_FACTORS), generate_image(), rtol=0, atol=1e-6
    )


def test_images_of_two_channels_are_refused():
    with raises_code("augment-invalid", 2):
        apply_color_jitter(generate_image(2), **NEUTRAL_FACTORS)
