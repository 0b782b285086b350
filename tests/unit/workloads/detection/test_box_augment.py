"""Boxes move with their picture: the oracle is a bright rectangle that is found again by its pixels."""

import numpy as np
import pytest
import torch

from equipoise.images.augment import Augment
from equipoise.workloads.detection.box_augment import BoxAugment, move_boxes
from tests.support.errors import raises_code

SIDE = 64
EPOCHS, EXAMPLES = np.zeros(40, np.int64), np.arange(40)
EXACT = [Augment(flip=True), Augment(shift=9), Augment(shift=9, flip=True), Augment(brightness=0.3)]
SMOOTH = [Augment(crop=0.4), Augment(crop=0.5, flip=True, shift=5), Augment(distort=0.1, flip=True)]


def paint_rectangles(count=40):
    """Return black pictures with one white rectangle each, and its box."""
    rng = np.random.default_rng(0)
    images, targets = torch.zeros(count, 3, SIDE, SIDE, dtype=torch.uint8), torch.zeros(count, 2, 6)
    targets[:, 1, 0] = -1
    for index in range(count):
        x, y = rng.integers(0, SIDE - 16, 2)
        width, height = (int(rng.integers(12, SIDE + 1 - start)) for start in (x, y))
        images[index, :, y : y + height, x : x + width] = 200
        targets[index, 0] = torch.tensor([index % 5, x, y, width, height, index % 2])
    return images, targets


def find_white(image):
    """Return the corners of the white pixels of a picture; None if there are none."""
    rows, columns = np.nonzero(image[0].numpy() > 80)
    return (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) if len(rows) else None


@pytest.mark.parametrize("augment", EXACT + SMOOTH, ids=str)
def test_boxes_are_where_the_pixels_are(augment):
    images, targets = paint_rectangles()
    new_images, new_targets = BoxAugment(pictures=augment, min_visible=0.0)(images, targets, 3, EPOCHS, EXAMPLES)
    assert new_targets.dtype == targets.dtype and new_targets.shape == targets.shape
    tolerance, checked = (0 if augment in EXACT else 1.01), 0
    for image, (label, x, y, width, height, crowd), before in zip(
        new_images, new_targets[:, 0].tolist(), targets[:, 0].tolist(), strict=True
    ):
        white = find_white(image)
        if white is None or label == -1:
            assert white is None or min(white[2] - white[0], white[3] - white[1]) <= 2
            continue
        assert (label, crowd) == (before[0], before[5])
        assert np.abs(np.array([x, y, x + width, y + height]) - white).max() <= tolerance
        checked += 1
    assert checked > 30
    assert not new_targets[:, 1, 0].ne(-1).any()


def test_boxes_mostly_out_of_the_picture_are_dropped_and_others_cut():
    moved_left = np.eye(3)[None] + np.array([[[0, 0, 10.0], [0, 0, 0], [0, 0, 0]]])
    targets = np.array([[[2.0, 2, 5, 10, 4, 0], [3, 7, 5, 10, 4, 0], [1, 40, 5, 10, 4, 1], [-1, 0, 0, 1, 1, 0]]])
    result = move_boxes(targets, moved_left, (SIDE, SIDE), 0.3)
    assert result[0, :, 0].tolist() == [-1, 3, 1, -1]
    assert result[0, 1].tolist() == [3, 0, 5, 7, 4, 0]
    assert result[0, 2].tolist() == [1, 30, 5, 10, 4, 1]
    assert move_boxes(targets, moved_left, (SIDE, SIDE), 0.1)[0, 0].tolist() == [2, 0, 5, 2, 4, 0]


def test_changes_depend_on_the_example_and_not_on_its_batch():
    images, targets = paint_rectangles()
    augment = BoxAugment(pictures=Augment(crop=0.5, flip=True, distort=0.05, shift=3, noise=0.02))
    whole = augment(images, targets, 3, EPOCHS, EXAMPLES)
    for part in (slice(0, 7), slice(7, 40)):
        pieces = augment(images[part], targets[part], 3, EPOCHS[part], EXAMPLES[part])
        assert torch.equal(pieces[0], whole[0][part]) and torch.equal(pieces[1], whole[1][part])
    assert not torch.equal(whole[1], augment(images, targets, 3, EPOCHS + 1, EXAMPLES)[1])


def test_pixels_are_those_of_the_augmentation_without_boxes():
    images, targets = paint_rectangles()
    pictures = Augment(crop=0.5, flip=True, brightness=0.3)
    changed = BoxAugment(pictures=pictures)(images, targets, 3, EPOCHS, EXAMPLES)[0]
    assert torch.equal(changed, pictures.augment_images(images, 3, EPOCHS, EXAMPLES))


def test_share_that_must_stay_is_a_fraction():
    with raises_code("augment-invalid", "1.5"):
        BoxAugment(pictures=Augment(), min_visible=1.5)
