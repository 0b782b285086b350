"""Images of downloaded data sets are resized like photographs: smoothed before they get smaller."""

import torch

from equipoise.workloads.download import resize_images


def test_fine_stripes_become_grey_where_an_image_gets_smaller():
    stripes = torch.tensor([0, 200], dtype=torch.uint8).repeat(32).expand(1, 1, 64, 64).clone()
    small = resize_images(stripes, 12)
    assert small.dtype == torch.uint8 and small.shape == (1, 1, 12, 12)
    assert (small.float() - 100).abs().max() < 25  # sampled without smoothing, some would be 0 and some 200


def test_image_of_the_right_size_is_unchanged():
    image = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8)
    assert resize_images(image, 8) is image
