"""Metric of detectors: COCO's mean average precision, from one row for each picture."""

import math
from typing import Any

import torch
from torch import Tensor

from equipoise.boxes.mean_average_precision import compute_precision, match_pictures


def box_rows(outputs: Any, targets: Tensor) -> Tensor:
    """Return a row for each picture that says which of the model's answers are right, by overlap and size."""
    answers, boxes = (values.detach().double().cpu().numpy() for values in (outputs["detections"], targets))
    return torch.from_numpy(match_pictures(answers, boxes)).to(targets.device)


def coco_precision(rows: Tensor) -> float:
    """Return COCO's mean average precision over overlaps of 0.50 to 0.95; 0 if there is nothing to find."""
    precision = compute_precision(rows.double().cpu().numpy()).overall
    return 0.0 if math.isnan(precision) else precision
