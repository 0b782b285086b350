import numpy as np
import pytest
import torch

from equipoise.images.augment import AUGMENT_DRAW_NAMES, Augment, homography_matrices, shift_images, warp_images
from equipoise.rng import example_uniforms
from tests.support.errors import raises_code


def generate_images(count=40, channels=2, size=9):
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=torch.manual_seed(0))


def test_shift_is_a_crop_of_the_padded_image():
    images, max_shift = generate_images(30), 3
    corners = np.random.default_rng(0).integers(0, 2 * max_shift + 1, (30, 2))
    shifted = shift_images(images, corners, max_shift)
    for image, (row, column), result in zip(images, corners, shifted, strict=True):
        padded = torch.zeros(2, 15, 15, dtype=torch.uint8)
        padded[:, 3:12, 3:12] = image
        assert torch.equal(result, padded[:, row : row + 9, column : column + 9])


def test_image_is_augmented_the_same_in_any_batch():
    images, augment = generate_images(), Augment(shift=2, flip=True)
    epochs, examples = np.full(40, 3), np.arange(40)
    augmented = augment.augment_images(images, 5, epochs, examples)
    for i in range(40):
        assert torch.equal(
            augmented[i], augment.augment_images(images[i : i + 1], 5, epochs[i : i + 1], examples[i : i + 1])[0]
        )


def test_images_that_fill_several_chunks_are_all_augmented():
    images = generate_images(7, channels=3, size=256)  # two of these fill a chunk
    numbers = np.arange(7)
    augmented = Augment(shift=2, flip=True).augment_images(images, 5, np.zeros(7, np.int64), numbers)
    alone = [
        Augment(shift=2, flip=True).augment_images(images[i : i + 1], 5, np.zeros(1, np.int64), numbers[i : i + 1])
        for i in numbers
    ]
    assert torch.equal(augmented, torch.cat(alone))


def test_half_of_the_images_are_flipped_and_different_ones_in_each_epoch():
    images = generate_images(400)
    flipped = Augment(flip=True).augment_images(images, 0, np.zeros(400, np.int64), np.arange(400))
    is_flipped = (flipped != images).flatten(1).any(1)
    assert torch.equal(flipped[is_flipped], images[is_flipped].flip(-1))
    assert 150 < int(is_flipped.sum()) < 250
    next_epoch = Augment(flip=True).augment_images(images, 0, np.ones(400, np.int64), np.arange(400))
    assert not torch.equal(flipped, next_epoch)


def test_every_shift_occurs():
    draws = example_uniforms(0, np.zeros(2000, np.int64), np.arange(2000), 2)
    assert set((draws * 5).astype(int).flatten()) == set(range(5))


def test_dtype_and_shape_are_kept_and_the_default_changes_nothing():
    images = generate_images()
    augmented = Augment(shift=1, flip=True).augment_images(images, 0, np.zeros(40, np.int64), np.arange(40))
    assert augmented.dtype == images.dtype and augmented.shape == images.shape
    assert torch.equal(Augment().augment_images(images, 0, np.zeros(40, np.int64), np.arange(40)), images)


def test_black_stays_black_and_white_becomes_no_whiter():
    black = torch.zeros(40, 3, 4, 4, dtype=torch.uint8)
    numbers, epochs = np.arange(40), np.zeros(40, np.int64)
    assert Augment(brightness=0.5).augment_images(black, 0, epochs, numbers).max() == 0
    brighter = Augment(brightness=0.5).augment_images(black + 255, 0, epochs, numbers).flatten(1)
    assert brighter.max() == 255 and 0.3 < (brighter == 255).all(1).float().mean() < 0.7


def test_white_is_as_white_however_bright_before_noise_is_added():
    white, epochs, numbers = torch.full((40, 3, 8, 8), 255, dtype=torch.uint8), np.zeros(40, np.int64), np.arange(40)
    noisy = Augment(noise=0.1).augment_images(white, 0, epochs, numbers)
    brighter = Augment(noise=0.1, brightness=0.5).augment_images(white, 0, epochs, numbers)
    is_brighter = example_uniforms(0, epochs, numbers, 25)[:, AUGMENT_DRAW_NAMES.index("brightness")] >= 0.5
    assert 10 < is_brighter.sum() < 30 and torch.equal(noisy[is_brighter], brighter[is_brighter])
    assert noisy.min() > 100  # above white it is not taken for black


def test_noise_has_its_standard_deviation_as_a_fraction_of_255():
    grey, epochs, numbers = torch.full((60, 3, 64, 64), 128, dtype=torch.uint8), np.zeros(60, np.int64), np.arange(60)
    noise = Augment(noise=0.08).augment_images(grey, 0, epochs, numbers).double() - 128
    shares = example_uniforms(0, epochs, numbers, 25)[:, AUGMENT_DRAW_NAMES.index("noise")]
    assert float((noise**2).mean()) == pytest.approx((0.08 * 255) ** 2 * np.mean(shares**2) + 1 / 12, rel=0.005)


AUGMENTATIONS = {
    "shift": {"shift": 2},
    "flip": {"flip": True},
    "crop": {"crop": 0.08},
    "distort": {"distort": 0.2},
    "brightness": {"brightness": 0.5},
    "contrast": {"contrast": 0.5},
    "saturation": {"saturation": 0.5},
    "hue": {"hue": 0.5},
    "kelvin": {"kelvin": (3000, 9000)},
    "reflection": {"reflection": 0.3},
    "blur": {"blur": 2.0},
    "noise": {"noise": 0.1},
}
AUGMENTATIONS["all"] = {name: value for ranges in AUGMENTATIONS.values() for name, value in ranges.items()}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_keeps_dtype_and_shape_and_depends_only_on_its_key(name):
    augment, images = Augment(**AUGMENTATIONS[name]), generate_images(24, 3, 20)
    epochs, examples = np.full(24, 2), np.arange(24) * 7
    augmented = augment.augment_images(images.clone(), 1, epochs, examples)
    assert augmented.dtype == torch.uint8 and augmented.shape == images.shape
    assert torch.equal(augmented, augment.augment_images(images.clone(), 1, epochs, examples))
    for i in (0, 11, 23):
        assert torch.equal(
            augmented[i],
            augment.augment_images(images[i : i + 1].clone(), 1, epochs[i : i + 1], examples[i : i + 1])[0],
        )
    assert not torch.equal(augmented, augment.augment_images(images.clone(), 1, epochs + 1, examples))
    assert not torch.equal(augmented, images)


@pytest.mark.parametrize("name", sorted(set(AUGMENTATIONS) - {"saturation", "hue", "kelvin", "reflection", "all"}))
def test_grey_images_are_augmented(name):
    images = generate_images(8, 1, 20)
    assert (
        Augment(**AUGMENTATIONS[name]).augment_images(images, 1, np.zeros(8, np.int64), np.arange(8)).shape
        == images.shape
    )


@pytest.mark.parametrize("name", ["kelvin", "reflection"])
def test_relighting_grey_images_is_refused(name):
    with raises_code("augment-invalid", "kelvin", 1):
        Augment(**AUGMENTATIONS[name]).augment_images(generate_images(8, 1), 0, np.zeros(8, np.int64), np.arange(8))


def test_crop_enlarges_a_part_of_the_image():
    gradient = torch.linspace(0, 255, 64).view(1, 1, 64, 1).expand(200, 3, 64, 64).round().to(torch.uint8)
    cropped = Augment(crop=0.08).augment_images(gradient, 0, np.zeros(200, np.int64), np.arange(200)).float()
    span = cropped[:, 0, -2, 32] - cropped[:, 0, 1, 32]
    assert float(span.min()) > 255 * 0.24 * 0.85  # height at least sqrt(.08 * 3 / 4)
    assert float(span.max()) < 256
    assert float(span.std()) > 20


def test_unmoved_corners_change_nothing():
    matrices = homography_matrices(np.zeros((3, 4, 2)))
    np.testing.assert_allclose(matrices, np.tile(np.eye(3), (3, 1, 1)), atol=1e-12)
    images = generate_images(3, 3, 17)
    assert torch.equal(warp_images(images, matrices), images)


def test_flip_with_crop_mirrors_the_cropped_area():
    images, epochs = generate_images(40, 3, 16), np.zeros(40, np.int64)
    mirrored_crop = Augment(crop=0.3).augment_images(images.flip(-1), 0, epochs, np.arange(40))
    augmented = Augment(crop=0.3, flip=True).augment_images(images, 0, epochs, np.arange(40))
    plain_crop = Augment(crop=0.3).augment_images(images, 0, epochs, np.arange(40))
    is_mirrored = (augmented.int() - mirrored_crop.int()).abs().amax((1, 2, 3)) <= 1
    assert torch.equal(augmented[~is_mirrored], plain_crop[~is_mirrored])
    assert 10 < int(is_mirrored.sum()) < 30


def test_homography_moves_corners_by_their_offsets():
    offsets = np.random.default_rng(0).uniform(-0.3, 0.3, (5, 4, 2))
    corners = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]])
    for matrix, offset in zip(homography_matrices(offsets), offsets, strict=True):
        moved = corners @ matrix.T
        np.testing.assert_allclose(moved[:, :2] / moved[:, 2:], corners[:, :2] + offset, atol=1e-9)


@pytest.mark.parametrize(
    "ranges",
    [
        {"crop": 0.0},
        {"hue": 0.7},
        {"shift": 100_000},
        {"shift": 1.5},
        {"blur": float("inf")},
        {"kelvin": 5000},
        {"noise": -0.1},
        {"kelvin": (9000, 3000)},
        {"kelvin": (1499, 3000)},
        {"kelvin": (3000, 25001)},
        {"kelvin": (3000, 5000, 7000)},
        {"brightness": float("nan")},
        {"brightness": 1.01},
        {"blur": 64.1},
        {"shift": 513},
        {"crop": 1.01},
        {"distort": 0.51},
        {"hue": -0.01},
    ],
)
def test_invalid_range_is_refused(ranges):
    with raises_code("augment-invalid", *(f"Augment.{name}" for name in ranges)):
        Augment(**ranges)


def test_limits_of_each_range_are_accepted():
    Augment(kelvin=(1500, 25000), brightness=1.0, blur=64.0, shift=512, crop=1.0, distort=0.5, hue=0.5)
    Augment(kelvin=(6500, 6500), brightness=0.0, blur=0.0, shift=0, crop=0.01, distort=0.0, hue=0.0)


def test_shift_that_is_no_whole_number_is_refused_though_it_is_within_its_limits():
    for shift in (2.0, True):
        with raises_code("augment-invalid", "Augment.shift", "whole number"):
            Augment(shift=shift)


@pytest.mark.parametrize("share", [15 / 32, 17 / 32])
def test_warped_values_are_rounded_to_the_nearest(share):
    images, view = generate_images(1, 1, 16), np.eye(3)[None].copy()
    view[0, 0, 2] = share * 2 / 16  # of a pixel to the right, which fp32 computes without an error
    left, right = images[..., :-1].double(), images[..., 1:].double()
    expected = (left + share * (right - left) + 0.5).floor()
    assert torch.equal(warp_images(images, view)[..., :-1].double(), expected)
