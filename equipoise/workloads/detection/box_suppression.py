"""Non-maximum suppression of whole batches by tensors of fixed shapes, which a published program can hold.

torchvision's own operator returns as many boxes as stay, picture by picture. Here the suppression is the fixed point of
"a box stays unless one that stays has a higher score and overlaps it", reached from the top: each pass settles at least
one more link of each chain of boxes that suppress each other (Zheng et al., "Enhancing Geometric Factors in Model
Learning and Inference", 2020, https://arxiv.org/abs/2005.03572).
"""

import torch
from torch import Tensor

PASSES = 16  # new models and crowded pictures had chains of at most 7 boxes


def suppress_boxes(corners: Tensor, scores: Tensor, labels: Tensor, max_overlap: float) -> Tensor:
    """Return 1 for each box that stays, else 0: (n, boxes), as the greedy suppression within each class.

    Corners (n, boxes, 4) are left, top, right and bottom; boxes are ordered by falling score, and one with a score of 0
    is none.
    """
    boxes = corners.shape[1]
    is_same = labels[:, :, None] == labels[:, None]
    is_later = torch.arange(boxes)[:, None] < torch.arange(boxes)
    suppresses = ((compute_overlaps(corners) > max_overlap) & is_same & is_later.to(corners.device)).to(scores.dtype)
    is_used = (scores > 0).to(scores.dtype)
    stays = is_used
    for _ in range(PASSES):
        stays = is_used * (torch.bmm(stays[:, None], suppresses)[:, 0] == 0).to(scores.dtype)
    return stays


def compute_overlaps(corners: Tensor) -> Tensor:
    """Return the intersection over union of each pair of boxes of a picture: (n, boxes, boxes)."""
    left, top, right, bottom = corners.unbind(-1)
    width = torch.minimum(right[:, :, None], right[:, None]) - torch.maximum(left[:, :, None], left[:, None])
    height = torch.minimum(bottom[:, :, None], bottom[:, None]) - torch.maximum(top[:, :, None], top[:, None])
    shared = width.clamp(min=0) * height.clamp(min=0)
    areas = (right - left) * (bottom - top)
    return shared / (areas[:, :, None] + areas[:, None] - shared).clamp(min=1e-9)
