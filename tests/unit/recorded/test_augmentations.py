"""An augmented image is the same in every version, so that an interrupted run can be resumed by a later one."""

import numpy as np
import pytest
import torch

from equipoise.images.augment import Augment
from tests.support.recorded import assert_as_recorded
from tests.unit.images.test_augment import AUGMENTATIONS

MAX_DIFFERENCE = 2  # levels of 255


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmented_images_are_as_recorded(name):
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 24), torch.linspace(0, 1, 24), indexing="ij")
    image = torch.stack([rows, columns, (rows * columns)]) * 200 + 30
    images = image.round().to(torch.uint8).repeat(16, 1, 1, 1)
    augmented = Augment(**AUGMENTATIONS[name]).augment_images(images, 3, np.full(16, 2), np.arange(16))
    assert_as_recorded(f"augment-{name}", {"levels": augmented.numpy().astype(int)}, rtol=0, atol=MAX_DIFFERENCE)
