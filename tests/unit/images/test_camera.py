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


def test_log_of_red_over_blue_is_linear_in_inverse_temperature():
    kelvin = np.array([2500.0, 4000, 6500, 10000])
    gains = blackbody_gain(kelvin)
    slope = np.diff(np.log(gains[:, 0] / gains[:, 2])) / np.diff(1 / kelvin)
    wien_slope = SECOND_RADIATION_CONSTANT * (1 / RGB_WAVELENGTH_METERS[2] - 1 / RGB_WAVELENGTH_METERS[0])
    np.testing.assert_allclose(slope, wien_slope, rtol=0.1)  # Wien's law, which omits the -1 of Planck's law


def test_8_bit_values_survive_linear_light():
    values = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    restored = linear_to_srgb8(srgb8_to_linear(values))
    assert int((restored.int() - values.int()).abs().max()) <= 1  # the darkest steps are finer than LINEAR_LIGHT_LEVELS
    assert torch.equal(restored[values > 24], values[values > 24])


def test_srgb_curve_has_reference_values_and_its_inverse():
    np.testing.assert_allclose(srgb_encode(np.array([0.0, 0.0031308, 0.2140, 1.0])), [0, 0.04045, 0.5, 1], atol=1e-4)
    fractions = np.linspace(0, 1, 50)
    np.testing.assert_allclose(srgb_decode(srgb_encode(fractions)), fractions, atol=1e-6)


def test_veil_moves_every_pixel_towards_the_light():
    image, lamp = torch.tensor([0.0, 0.5]).view(1, 1, 1, 2), torch.ones(1, 1, 1, 1)
    veiled = add_veil(image, torch.full((1, 1, 1, 1), 0.2), lamp)
    torch.testing.assert_close(veiled.flatten(), torch.tensor([0.2, 0.6]))


def test_spot_is_brightest_at_its_centre():
    spot = gaussian_spot(41, 21, np.array([[0.5, -0.5]]), 0.3)[0, 0]
    assert divmod(int(spot.argmax()), 21) == (30, 5)
    assert float(spot.max()) == pytest.approx(1)


def test_spot_falls_to_a_share_of_1_over_e_at_its_radius():
    rows = np.array([0.0, 0.35, -0.35])  # of an image whose rows and columns are 0.05 half sides apart
    spot = gaussian_spot(41, 41, np.array([[0.0, 0.0]]))[0, 0]
    places = 20 + np.rint(rows / 0.05).astype(int)
    assert spot[places, 20].tolist() == pytest.approx([1, np.exp(-1), np.exp(-1)], rel=1e-5)
    assert spot[20, places].tolist() == pytest.approx([1, np.exp(-1), np.exp(-1)], rel=1e-5)
    assert float(spot[27, 27]) == pytest.approx(np.exp(-2), rel=1e-5)


def test_srgb_curve_is_that_of_its_standard():
    values = np.array([0, 10, 11, 64, 128, 200, 255]) / 255
    expected = [0, 0.003035, 0.003347, 0.051269, 0.215861, 0.577580, 1]  # IEC 61966-2-1
    np.testing.assert_allclose(srgb_decode(values), expected, atol=1e-6)
    np.testing.assert_allclose(srgb_encode(np.array(expected)), values, atol=2e-5)


def test_noise_of_the_last_position_is_the_end_of_its_table():
    like = torch.empty(1, 1, 2, 2)
    first, last = (sensor_noise(np.array([position]), like) for position in (0.0, 1.0))
    table = np.random.Generator(np.random.Philox(key=0)).standard_normal(1 << 20, np.float32)
    assert first.flatten().tolist() == table[:4].tolist() and last.flatten().tolist() == table[-4:].tolist()


@pytest.mark.parametrize("sigma", [0.7, 1.5, 3.0])
def test_blur_matches_a_gaussian(sigma):
    point = np.zeros((41, 41), np.uint8)
    point[20, 20] = 255
    blurred = gaussian_blur(torch.from_numpy(point).float()[None, None], np.array([sigma]), sigma)[0, 0]
    assert float(blurred.sum()) == pytest.approx(255, rel=1e-4)
    offsets = torch.arange(41) - 20.0
    assert float((blurred.sum(0) * offsets**2).sum() / 255) == pytest.approx(sigma**2, rel=0.03)
    reference = np.asarray(Image.fromarray(point).filter(ImageFilter.GaussianBlur(sigma)), float)
    # The tolerance is wide because Pillow approximates the Gaussian by box blurs.
    assert np.abs(blurred.numpy() - reference).max() < 0.15 * reference.max() + 1


def test_each_image_has_its_own_blur_and_zero_changes_nothing():
    images = torch.rand(3, 2, 16, 16)
    blurred = gaussian_blur(images, np.array([0.0, 1.0, 2.0]), 2.0)
    torch.testing.assert_close(blurred[0], images[0])
    assert float(blurred[2].std()) < float(blurred[1].std()) < float(images[1].std())


def test_noise_is_normal_and_depends_only_on_its_position():
    positions, like = np.linspace(0, 0.9, 20), torch.empty(20, 3, 16, 16)
    noise = sensor_noise(positions, like)
    assert abs(float(noise.mean())) < 0.02 and abs(float(noise.std()) - 1) < 0.02
    assert torch.equal(sensor_noise(positions[7:8], like[:1])[0], noise[7])


@pytest.mark.parametrize("shape", [(3, 12), (12, 3), (2, 2)])
def test_images_smaller_than_the_kernel_are_blurred_too(shape):
    image = torch.rand(1, 1, *shape, generator=torch.manual_seed(0))
    blurred = gaussian_blur(image, np.array([2.0]), 2.0)
    assert blurred.shape == image.shape and blurred.std() < image.std()
    flat = torch.full((1, 1, *shape), 7.0)
    torch.testing.assert_close(gaussian_blur(flat, np.array([2.0]), 2.0), flat)


def test_every_level_of_light_has_the_value_of_the_srgb_curve():
    levels = np.arange(4096) / 4095
    encoded = linear_to_srgb8(torch.from_numpy(levels).float())
    np.testing.assert_array_equal(encoded, np.rint(srgb_encode(levels) * 255))
    between = torch.tensor([0.49 / 4095, 0.51 / 4095, -1.0, 2.0])
    assert linear_to_srgb8(between).tolist() == [0, encoded[1], 0, 255]
