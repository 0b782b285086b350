"""Loss of a detector by centres: a focal loss of the centres, and the overlap of boxes at and around them.

Each picture's loss is divided by its own number of things, so that the loss of a batch is the mean over its pictures.
"""

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
    peaks = draw_peaks(targets, heatmap.shape[2:]) * (is_used & ~is_crowd)[..., None, None]
    crowds = draw_insides(targets, heatmap.shape[2:]) * (is_used & is_crowd)[..., None, None]
    wanted, is_ignored = (spread_by_class(maps, targets, heatmap.shape[1]) for maps in (peaks, crowds))
    losses = focal_loss(heatmap, wanted, is_ignored) + BOX_WEIGHT * box_loss(sides, targets, peaks)
    return (losses / (is_used & ~is_crowd).sum(1).clamp(min=1)).mean()


def place_middles(shape: torch.Size, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return x (columns) and y (rows, 1) of the middle of each place of a map, in pixels of the picture."""
    y, x = ((torch.arange(length, device=like.device, dtype=like.dtype) + 0.5) * STRIDE for length in shape)
    return x, y[:, None]


def draw_peaks(targets: Tensor, shape: torch.Size) -> Tensor:
    """Draw a Gaussian peak of height 1 at the place of each box's centre: (n, boxes, rows, columns)."""
    exponent = targets.new_zeros(())
    for start, side, middles, length in zip((1, 2), (3, 4), place_middles(shape, targets), shape[::-1], strict=True):
        extent = targets[..., side] / STRIDE
        place = (targets[..., start] / STRIDE + extent / 2).floor().clamp(0, length - 1)
        sigma = (extent / SIGMAS_PER_SIDE).clamp(min=MIN_SIGMA)
        distance = (middles / STRIDE - 0.5) - place[..., None, None]
        exponent = exponent + (distance / sigma[..., None, None]).square()
    return torch.exp(-exponent / 2)


def draw_insides(targets: Tensor, shape: torch.Size) -> Tensor:
    """Return 1 at the places inside of each box, else 0: (n, boxes, rows, columns)."""
    x, y = place_middles(shape, targets)
    left, top, width, height = targets[..., 1:5, None, None].unbind(2)
    return ((x >= left) & (x < left + width) & (y >= top) & (y < top + height)).to(targets.dtype)


def spread_by_class(maps: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """Return the highest value among the boxes of each class at each place: (n, classes, rows, columns)."""
    labels = targets[..., 0].clamp(min=0).long()[..., None, None].expand_as(maps)
    zeros = maps.new_zeros(len(maps), num_classes, *maps.shape[2:])
    return zeros.scatter_reduce(1, labels, maps, "amax")


def focal_loss(heatmap: Tensor, wanted: Tensor, is_ignored: Tensor) -> Tensor:
    """Return the focal loss of centres of each picture: places near a centre count less, easy ones hardly."""
    score, is_center = heatmap.sigmoid(), wanted == 1
    found = (1 - score).square() * F.logsigmoid(heatmap)
    absent = (1 - wanted).pow(4) * score.square() * F.logsigmoid(-heatmap) * (1 - is_ignored)
    return -torch.where(is_center, found, absent).sum((1, 2, 3))


def box_loss(sides: Tensor, targets: Tensor, peaks: Tensor) -> Tensor:
    """Return one minus the generalized overlap of boxes at and around their centres, summed over a picture's boxes."""
    is_highest = peaks.argmax(1, keepdim=True) == torch.arange(peaks.shape[1], device=peaks.device).view(-1, 1, 1)
    weights = peaks * is_highest * (peaks > MIN_PEAK)
    weights = weights / weights.sum((2, 3), keepdim=True).clamp(min=MIN_PEAK)
    x, y = place_middles(peaks.shape[2:], targets)
    left, top, right, bottom = sides.unsqueeze(1).unbind(2)
    predicted = torch.stack([x - left, y - top, x + right, y + bottom], -1)
    corners = torch.cat([targets[..., 1:3], targets[..., 1:3] + targets[..., 3:5]], -1)[:, :, None, None]
    return ((1 - generalized_overlap(predicted, corners)) * weights).sum((1, 2, 3))


def generalized_overlap(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the generalized intersection over union of boxes given by their corners x, y, x, y (Rezatofighi 2019)."""
    inner = (torch.minimum(boxes[..., 2:], others[..., 2:]) - torch.maximum(boxes[..., :2], others[..., :2])).clamp(
        min=0
    )
    outer = torch.maximum(boxes[..., 2:], others[..., 2:]) - torch.minimum(boxes[..., :2], others[..., :2])
    intersection, hull = inner.prod(-1), outer.prod(-1)
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(-1), (others[..., 2:] - others[..., :2]).prod(-1)
    union = areas[0] + areas[1] - intersection
    return intersection / union.clamp(min=1e-9) - (hull - union) / hull.clamp(min=1e-9)
