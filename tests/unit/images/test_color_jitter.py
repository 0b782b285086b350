import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as theirs

from equipoise.images.color_jitter import RGB_TO_LUMA, apply_color_jitter, hue_matrices

NONE = {"brightness": np.ones(1), "contrast": np.ones(1), "saturation": np.ones(1), "hue": np.zeros(1)}


def picture(channels=3):
    return torch.rand(1, channels, 12, 12, generator=torch.manual_seed(0)) * 0.5 + 0.25


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_a_factor_does_what_torchvisions_does(name, factor):
    ours = apply_color_jitter(picture(), **NONE | {name: np.array([factor])}).clamp(0, 1)
    reference = getattr(theirs, f"adjust_{name}")(picture(), factor)
    torch.testing.assert_close(ours, reference, rtol=0, atol=2e-3)  # their weights of grey have four digits


@pytest.mark.parametrize("name", ["brightness", "contrast"])
def test_grey_pictures_too(name):
    ours = apply_color_jitter(picture(1), **NONE | {name: np.array([0.7])}).clamp(0, 1)
    torch.testing.assert_close(ours, getattr(theirs, f"adjust_{name}")(picture(1), 0.7), rtol=0, atol=2e-3)


def test_hue_turns_about_grey_and_keeps_it():
    turns = np.array([0.1, 0.5])
    matrices = hue_matrices(turns)
    np.testing.assert_allclose(matrices @ np.ones(3), 1, atol=1e-9)
    np.testing.assert_allclose(RGB_TO_LUMA @ matrices, np.tile(RGB_TO_LUMA, (2, 1)), atol=1e-9)
    np.testing.assert_allclose(matrices[1] @ matrices[1], np.eye(3), atol=1e-9)  # two half turns


def test_nothing_asked_changes_nothing():
    torch.testing.assert_close(apply_color_jitter(picture(), **NONE), picture(), rtol=0, atol=1e-6)


def test_two_channels_have_no_colours():
    with pytest.raises(ValueError, match="1 or 3 channels, these have 2"):
        apply_color_jitter(picture(2), **NONE)
