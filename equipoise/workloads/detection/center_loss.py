"""Loss of a detector by centres: a focal loss of the centres, and the overlap of boxes at and around them.

Each picture's loss is divided by its own number of things, so that the loss of a batch is the mean over its pictures.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from equipoise.workloads.detection.center_model import STRIDE

SIGMAS_PER_SIDE = 6.0  # standard deviations of a centre's peak in the width, and in the height, of its box
MIN_SIGMA = 0.4  # of a peak, in places of the map
MIN_PEAK = 0.3  # at which a place answers with the box, too
BOX_WEIGHT = 2.0  # of the loss of boxes beside that of centres


def center_loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the mean over pictures of the loss of centres and boxes; targets are boxes (n, boxes, 6)."""
    dtype = torch.promote_types(outputs["heatmap"].dtype, torch.float32)
    heatmap, sides, targets = (values.to(dtype) for values in (outputs["heatmap"], outputs["sides"], targets))
    is_used, is_crowd = targets[..., 0] >= 0, targets[..., 5] > 0
    is_thing = is_used & ~is_crowd
    peaks = draw_peaks(targets, heatmap.shape[2:]) * is_thing[..., None, None]
    wanted = spread_by_class(peaks, targets, heatmap.shape[1])
    absent_weight = (1 - wanted).square().square()  # places near a centre count less
    if (is_used & is_crowd).any():
        crowds = draw_insides(targets, heatmap.shape[2:]) * (is_used & is_crowd)[..., None, None]
        absent_weight = absent_weight * (1 - spread_by_class(crowds, targets, heatmap.shape[1]))
    losses = focal_loss(heatmap, wanted == 1, absent_weight) + BOX_WEIGHT * box_loss(sides, targets, peaks)
    return (losses / is_thing.sum(1).clamp(min=1)).mean()


def place_middles(shape: torch.Size, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return x of the middle of each column of a map, and y of that of each row, in pixels of the picture."""
    y, x = ((torch.arange(length, device=like.device, dtype=like.dtype) + 0.5) * STRIDE for length in shape)
    return x, y


def draw_peaks(targets: Tensor, shape: torch.Size) -> Tensor:
    """Draw a Gaussian peak of height 1 at the place of each box's centre: (n, boxes, rows, columns)."""
    sections = []  # of the peak along x and y, whose product it is
    for start, side, middles, length in zip((1, 2), (3, 4), place_middles(shape, targets), shape[::-1], strict=True):
        extent = targets[..., side] / STRIDE
        place = (targets[..., start] / STRIDE + extent / 2).floor().clamp(0, length - 1)
        sigma = (extent / SIGMAS_PER_SIDE).clamp(min=MIN_SIGMA)
        distance = (middles / STRIDE - 0.5) - place[..., None]
        sections.append(torch.exp((distance / sigma[..., None]).square() / -2))
    return sections[0][..., None, :] * sections[1][..., None]


def draw_insides(targets: Tensor, shape: torch.Size) -> Tensor:
    """Return 1 at the places inside of each box, else 0: (n, boxes, rows, columns)."""
    x, y = place_middles(shape, targets)
    left, top, width, height = targets[..., 1:5, None].unbind(2)
    is_in_columns, is_in_rows = (x >= left) & (x < left + width), (y >= top) & (y < top + height)
    return (is_in_columns[..., None, :] & is_in_rows[..., None]).to(targets.dtype)


def spread_by_class(maps: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """Return the highest value among the boxes of each class at each place: (n, classes, rows, columns)."""
    labels = targets[..., 0].clamp(min=0).long()[..., None, None].expand_as(maps)
    zeros = maps.new_zeros(len(maps), num_classes, *maps.shape[2:])
    return zeros.scatter_reduce(1, labels, maps, "amax")


def focal_loss(heatmap: Tensor, is_center: Tensor, absent_weight: Tensor) -> Tensor:
    """Return the focal loss of centres of each picture: easy places hardly count."""
    score, log_score = heatmap.sigmoid(), F.logsigmoid(heatmap)
    found = (1 - score).square() * log_score
    absent = absent_weight * score.square() * (log_score - heatmap)  # the logarithm of 1 - score
    return -torch.where(is_center, found, absent).sum((1, 2, 3))


def box_loss(sides: Tensor, targets: Tensor, peaks: Tensor) -> Tensor:
    """Return one minus the generalized overlap of boxes at and around their centres, summed over a picture's boxes.

    Only the places that answer with a box are computed: each with the box whose peak is the highest there.
    """
    height, owner = peaks.max(1)  # n, rows, columns
    picture, row, column = (height > MIN_PEAK).nonzero(as_tuple=True)
    box, weight = owner[picture, row, column], height[picture, row, column]
    totals = weight.new_zeros(peaks.shape[:2]).index_put_((picture, box), weight, accumulate=True)
    weight = weight / totals[picture, box].clamp(min=MIN_PEAK)
    middles_x, middles_y = place_middles(peaks.shape[2:], targets)
    x, y = middles_x[column], middles_y[row]
    left, top, right, bottom = sides.movedim(1, -1)[picture, row, column].unbind(1)
    box_left, box_top, box_width, box_height = targets[picture, box, 1:5].unbind(1)
    overlaps = generalized_overlap(
        (x - left, y - top, x + right, y + bottom),
        (box_left, box_top, box_left + box_width, box_top + box_height),
    )
    losses = torch.zeros_like(height).index_put((picture, row, column), (1 - overlaps) * weight)
    return losses.sum((1, 2))


def generalized_overlap(boxes: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return the generalized intersection over union of boxes given by their left, top, right and bottom sides.

    After Rezatofighi et al., "Generalized intersection over union" (2019).
    """
    inner = [torch.minimum(boxes[end], others[end]) - torch.maximum(boxes[end - 2], others[end - 2]) for end in (2, 3)]
    outer = [torch.maximum(boxes[end], others[end]) - torch.minimum(boxes[end - 2], others[end - 2]) for end in (2, 3)]
    intersection, hull = inner[0].clamp(min=0) * inner[1].clamp(min=0), outer[0] * outer[1]
    areas = [(right - left) * (bottom - top) for left, top, right, bottom in (boxes, others)]
    union = areas[0] + areas[1] - intersection
    return intersection / union.clamp(min=1e-9) - (hull - union) / hull.clamp(min=1e-9)
