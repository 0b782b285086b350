import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from equipoise.images.camera import (
    RGB_WAVELENGTH_METERS,
    SECOND_RADIATION_CONSTANT,
    add_veil,
    blackbody_gain,
    gaussian_blur,
    gaussian_spot,
    linear_to_srgb8,
    sensor_noise,
    srgb8_to_linear,
)
from equipoise.images.srgb import srgb_decode, srgb_encode


def test_light_of_6500_kelvin_changes_nothing_and_warm_light_is_red():
    gains = blackbody_gain(np.array([3000.0, 6500.0, 9000.0]))
    np.testing.assert_allclose(gains[1], 1)
    assert gains[0, 0] > 1 > gains[0, 2]
    assert gains[2, 0] < 1 < gains[2, 2]
    np.testing.assert_allclose(gains[:, 1], 1)


def test_red_over_blue_falls_as_the_inverse_of_the_temperature():
    kelvin = np.array([2500.0, 4000, 6500, 10000])
    gains = blackbody_gain(kelvin)
    slope = np.diff(np.log(gains[:, 0] / gains[:, 2])) / np.diff(1 / kelvin)
    wien = SECOND_RADIATION_CONSTANT * (1 / RGB_WAVELENGTH_METERS[2] - 1 / RGB_WAVELENGTH_METERS[0])
    np.testing.assert_allclose(slope, wien, rtol=0.1)  # Wien's law, which leaves out a one


def test_eight_bits_come_back_from_linear_light():
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    again = linear_to_srgb8(srgb8_to_linear(every))
    assert int((again.int() - every.int()).abs().max()) <= 1  # the darkest steps are finer than LEVELS
    assert torch.equal(again[every > 24], every[every > 24])


def test_the_curve_is_that_of_srgb():
    np.testing.assert_allclose(srgb_encode(np.array([0.0, 0.0031308, 0.2140, 1.0])), [0, 0.04045, 0.5, 1], atol=1e-4)
    shares = np.linspace(0, 1, 50)
    np.testing.assert_allclose(srgb_decode(srgb_encode(shares)), shares, atol=1e-6)


def test_a_veil_brings_every_pixel_towards_the_light():
    picture, lamp = torch.tensor([0.0, 0.5]).view(1, 1, 1, 2), torch.ones(1, 1, 1, 1)
    veiled = add_veil(picture, torch.full((1, 1, 1, 1), 0.2), lamp)
    torch.testing.assert_close(veiled.flatten(), torch.tensor([0.2, 0.6]))


def test_a_spot_is_brightest_at_its_centre():
    found = gaussian_spot(41, 21, np.array([[0.5, -0.5]]), 0.3)[0, 0]
    assert divmod(int(found.argmax()), 21) == (30, 5)
    assert float(found.max()) == pytest.approx(1)


@pytest.mark.parametrize("sigma", [0.7, 1.5, 3.0])
def test_blur_is_a_gaussian(sigma):
    point = np.zeros((41, 41), np.uint8)
    point[20, 20] = 255
    ours = gaussian_blur(torch.from_numpy(point).float()[None, None], np.array([sigma]), sigma)[0, 0]
    assert float(ours.sum()) == pytest.approx(255, rel=1e-4)
    offsets = torch.arange(41) - 20.0
    assert float((ours.sum(0) * offsets**2).sum() / 255) == pytest.approx(sigma**2, rel=0.03)
    theirs = np.asarray(Image.fromarray(point).filter(ImageFilter.GaussianBlur(sigma)), float)
    assert np.abs(ours.numpy() - theirs).max() < 0.15 * theirs.max() + 1  # Pillow's is made of boxes


def test_each_picture_has_its_own_blur_and_none_is_none():
    pictures = torch.rand(3, 2, 16, 16)
    blurred = gaussian_blur(pictures, np.array([0.0, 1.0, 2.0]), 2.0)
    torch.testing.assert_close(blurred[0], pictures[0])
    assert float(blurred[2].std()) < float(blurred[1].std()) < float(pictures[1].std())


def test_grain_is_normal_and_belongs_to_its_place():
    places, like = np.linspace(0, 0.9, 20), torch.empty(20, 3, 16, 16)
    grain = sensor_noise(places, like)
    assert abs(float(grain.mean())) < 0.02 and abs(float(grain.std()) - 1) < 0.02
    assert torch.equal(sensor_noise(places[7:8], like[:1])[0], grain[7])
