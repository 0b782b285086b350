import numpy as np
import torch

from equipoise import keys
from equipoise.augment import Augment, shifted


def pictures(count=40, channels=2, size=9):
    return torch.randint(0, 256, (count, channels, size, size), dtype=torch.uint8, generator=torch.manual_seed(0))


def test_a_shift_is_a_cut_from_the_framed_picture():
    images, most = pictures(30), 3
    corners = np.random.default_rng(0).integers(0, 2 * most + 1, (30, 2))
    moved = shifted(images, corners, most)
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
    draws = keys.uniforms(0, np.zeros(2000, np.int64), np.arange(2000), 2)
    assert set((draws * 5).astype(int).flatten()) == set(range(5))


def test_type_shape_and_nothing_asked_for():
    images = pictures()
    vary = Augment(shift=1, flip=True)(images, 0, np.zeros(40, np.int64), np.arange(40))
    assert vary.dtype == images.dtype and vary.shape == images.shape
    assert torch.equal(Augment()(images, 0, np.zeros(40, np.int64), np.arange(40)), images)
