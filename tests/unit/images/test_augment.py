import numpy as np
import pytest
import torch

from equipoise.images.augment import Augment, homography_matrices, shift_images, warp_images
from equipoise.rng import example_uniforms


def pictures(count=40, channels=2, size=9):
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=torch.manual_seed(0))


def test_a_shift_is_a_cut_from_the_framed_picture():
    images, most = pictures(30), 3
    corners = np.random.default_rng(0).integers(0, 2 * most + 1, (30, 2))
    moved = shift_images(images, corners, most)
    for image, (row, column), result in zip(images, corners, moved, strict=True):
        framed = torch.zeros(2, 15, 15, dtype=torch.uint8)
        framed[:, 3:12, 3:12] = image
        assert torch.equal(result, framed[:, row : row + 9, column : column + 9])


def test_a_picture_is_varied_the_same_in_any_company():
    images, vary = pictures(), Augment(shift=2, flip=True)
    epochs, examples = np.full(40, 3), np.arange(40)
    together = vary(images, 5, epochs, examples)
    for i in range(40):
        assert torch.equal(together[i], vary(images[i : i + 1], 5, epochs[i : i + 1], examples[i : i + 1])[0])


def test_flips_take_half_of_the_pictures_and_differ_by_epoch():
    images = pictures(400)
    flipped = Augment(flip=True)(images, 0, np.zeros(400, np.int64), np.arange(400))
    which = (flipped != images).flatten(1).any(1)
    assert torch.equal(flipped[which], images[which].flip(-1))
    assert 150 < int(which.sum()) < 250
    again = Augment(flip=True)(images, 0, np.ones(400, np.int64), np.arange(400))
    assert not torch.equal(flipped, again)


def test_every_shift_occurs():
    draws = example_uniforms(0, np.zeros(2000, np.int64), np.arange(2000), 2)
    assert set((draws * 5).astype(int).flatten()) == set(range(5))


def test_type_shape_and_nothing_asked_for():
    images = pictures()
    vary = Augment(shift=1, flip=True)(images, 0, np.zeros(40, np.int64), np.arange(40))
    assert vary.dtype == images.dtype and vary.shape == images.shape
    assert torch.equal(Augment()(images, 0, np.zeros(40, np.int64), np.arange(40)), images)


EVERYTHING = {
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
EVERYTHING["all"] = {name: value for one in EVERYTHING.values() for name, value in one.items()}


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_variation_keeps_type_and_shape_belongs_to_its_key_and_does_something(name):
    vary, images = Augment(**EVERYTHING[name]), pictures(24, 3, 20)
    epochs, examples = np.full(24, 2), np.arange(24) * 7
    varied = vary(images.clone(), 1, epochs, examples)
    assert varied.dtype == torch.uint8 and varied.shape == images.shape
    assert torch.equal(varied, vary(images.clone(), 1, epochs, examples))
    for i in (0, 11, 23):
        assert torch.equal(varied[i], vary(images[i : i + 1].clone(), 1, epochs[i : i + 1], examples[i : i + 1])[0])
    assert not torch.equal(varied, vary(images.clone(), 1, epochs + 1, examples))
    assert not torch.equal(varied, images)


@pytest.mark.parametrize("name", sorted(set(EVERYTHING) - {"saturation", "hue", "kelvin", "reflection", "all"}))
def test_grey_pictures_vary_too(name):
    images = pictures(8, 1, 20)
    assert Augment(**EVERYTHING[name])(images, 1, np.zeros(8, np.int64), np.arange(8)).shape == images.shape


@pytest.mark.parametrize("name", ["kelvin", "reflection"])
def test_light_has_three_colours(name):
    with pytest.raises(ValueError, match="cannot relight images of 1 channels"):
        Augment(**EVERYTHING[name])(pictures(8, 1), 0, np.zeros(8, np.int64), np.arange(8))


def test_a_crop_is_a_part_enlarged():
    rows = torch.linspace(0, 255, 64).view(1, 1, 64, 1).expand(200, 3, 64, 64).round().to(torch.uint8)
    varied = Augment(crop=0.08)(rows, 0, np.zeros(200, np.int64), np.arange(200)).float()
    span = varied[:, 0, -2, 32] - varied[:, 0, 1, 32]
    assert float(span.min()) > 255 * 0.24 * 0.85  # height at least sqrt(.08 * 3 / 4)
    assert float(span.max()) < 256
    assert float(span.std()) > 20


def test_views_of_corners_that_do_not_move_change_nothing():
    found = homography_matrices(np.zeros((3, 4, 2)))
    np.testing.assert_allclose(found, np.tile(np.eye(3), (3, 1, 1)), atol=1e-12)
    images = pictures(3, 3, 17)
    assert torch.equal(warp_images(images, found), images)


def test_a_flip_within_a_crop_mirrors_what_the_crop_finds():
    images, zero = pictures(40, 3, 16), np.zeros(40, np.int64)
    straight = Augment(crop=0.3)(images.flip(-1), 0, zero, np.arange(40))
    varied = Augment(crop=0.3, flip=True)(images, 0, zero, np.arange(40))
    plain = Augment(crop=0.3)(images, 0, zero, np.arange(40))
    mirrored = (varied.int() - straight.int()).abs().amax((1, 2, 3)) <= 1
    assert torch.equal(varied[~mirrored], plain[~mirrored])
    assert 10 < int(mirrored.sum()) < 30


def test_corners_go_where_they_are_moved():
    moves = np.random.default_rng(0).uniform(-0.3, 0.3, (5, 4, 2))
    corners = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]])
    for matrix, move in zip(homography_matrices(moves), moves, strict=True):
        moved = corners @ matrix.T
        np.testing.assert_allclose(moved[:, :2] / moved[:, 2:], corners[:, :2] + move, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"crop": 0.0}, "crop must be above 0"),
        ({"hue": 0.7}, "hue must be from 0 to 0.5"),
        ({"shift": 100_000}, "shift must be from 0 to 512"),
        ({"shift": 1.5}, "shift must be a whole number"),
        ({"blur": float("inf")}, "blur must be from 0 to 64"),
        ({"kelvin": 5000}, "kelvin must be two temperatures"),
        ({"noise": -0.1}, "noise must be from 0 to 1"),
        ({"kelvin": (9000, 3000)}, "kelvin must be two temperatures"),
        ({"brightness": float("nan")}, "brightness must be from 0 to 1"),
    ],
)
def test_what_makes_no_variation_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Augment(**wrong)
