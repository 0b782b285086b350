"""Suppression by tensors of fixed shapes leaves the boxes that torchvision's operator leaves."""

import pytest
import torch
from torchvision.ops import batched_nms, box_iou

from equipoise.workloads.detection.box_suppression import compute_overlaps, suppress_boxes


def draw_boxes(count, spread, seed):
    """Return corners, falling scores and labels of boxes of about 45 pixels in a square of `spread`."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.rand(3, count, 2, generator=generator) * spread
    corners = torch.cat([starts, starts + 40 + 10 * torch.rand(3, count, 2, generator=generator)], -1)
    scores = torch.rand(3, count, generator=generator).sort(-1, descending=True).values
    return corners, scores, torch.randint(0, 3, (3, count), generator=generator)


@pytest.mark.parametrize("spread", [10, 60, 250])
def test_same_boxes_stay_as_with_torchvision(spread):
    corners, scores, labels = draw_boxes(120, spread, spread)
    scores[:, -20:] = 0.0
    stays = suppress_boxes(corners, scores, labels, 0.55)
    for picture in range(3):
        kept = batched_nms(corners[picture, :-20], scores[picture, :-20], labels[picture, :-20], 0.55)
        assert stays[picture].nonzero()[:, 0].tolist() == sorted(kept.tolist())
    assert 0 < stays.sum() < 360 - 60


def test_box_behind_a_suppressed_one_stays():
    corners = torch.tensor([[[0.0, 0, 40, 40], [10, 0, 50, 40], [20, 0, 60, 40]]])
    same, scores = torch.zeros(1, 3, dtype=torch.long), torch.tensor([[0.9, 0.8, 0.7]])
    assert suppress_boxes(corners, scores, same, 0.5).tolist() == [[1, 0, 1]]
    assert suppress_boxes(corners, scores, torch.tensor([[0, 1, 0]]), 0.5).tolist() == [[1, 1, 1]]


def test_overlaps_are_intersections_over_unions():
    corners = draw_boxes(30, 60, 1)[0]
    corners[:, 0] = 5.0  # without an area
    torch.testing.assert_close(compute_overlaps(corners)[0, 1:, 1:], box_iou(corners[0, 1:], corners[0, 1:]))
    assert (compute_overlaps(corners)[:, 0] == 0).all()
