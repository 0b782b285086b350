"""Workloads of pictures with boxes: uint8 pictures in, boxes with scores and classes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from equipoise.workloads.base import Split, Workload
from equipoise.workloads.batch import Batch
from equipoise.workloads.detection.box_metric import box_rows, coco_precision
from equipoise.workloads.detection.center_loss import center_loss

DETECTIONS = "detections"
"""key of a model's outputs that holds its answers: (n, k, 6) of x, y, width, height, score and class"""


@dataclass(frozen=True, kw_only=True)
class BoxWorkload(Workload):
    """Learning task on pictures with boxes around the things in them.

    The inputs of its splits are pictures as uint8 (examples, 3, height, width), or a sequence that reads one at a time.
    The targets are boxes (examples, boxes, 6): class, x, y, width and height in pixels of the picture as the model
    takes it, and 1 for a crowd. Every split has as many places for the boxes of a picture; unused ones have the class
    -1. Outputs of the model in evaluation are a dict that holds its answers as `detections` (examples, answers, 6): x,
    y, width, height, score and class, -1 if unused.
    """

    classes: Sequence[str]
    """class names in the order of the labels"""
    mean: Sequence[float]
    """mean of each channel, as a fraction of 255"""
    std: Sequence[float]
    """standard deviation of each channel, as a fraction of 255"""
    loss: Callable[[Any, Any], Tensor] = center_loss
    """maps (outputs, boxes) to the mean loss of a batch"""
    metric: Callable[[Any, Any], Tensor] = box_rows
    """maps (outputs, boxes) to one row per example, which says which answers are right"""
    metric_name: str = "mAP"
    has_independent_classes: bool = True
    score: Callable[[Tensor], float] | None = coco_precision
    """maps the rows of a split to COCO's mean average precision"""
    false_alarm_split: Split | None = None
    """examples distributed as the reference, to count false drift alarms on; the validation split if not given"""

    def input_transform(self, device: torch.device, dtype: torch.dtype) -> Callable[[Batch], Batch]:
        """Return what maps uint8 pictures to (uint8 / 255 - mean) / std."""
        mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (self.mean, self.std))
        scale, offset = (1 / (255 * std)).to(device, dtype), (-mean / std).to(device, dtype)
        return lambda pictures: pictures.to(dtype).mul_(scale).add_(offset)
