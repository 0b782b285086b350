"""Whether two engines find the same boxes: rounding moves a box by a fraction of a pixel, and may swap equal scores."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.bundle.engine_benchmark import MAX_RELATIVE_ERROR, measure_relative_error

MIN_COMPARED_SCORE = 0.1  # boxes with lower scores are noise, of which rounding decides the order
MAX_BOX_DIFFERENCE_PIXELS = 1.0
MAX_SCORE_DIFFERENCE = 1e-3


def compare_boxes(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
    """Return the largest relative error of scores and features, and whether the boxes are the same.

    Both sequences hold scores (images, boxes) from high to low, boxes (images, boxes, 4), labels and features. Low
    scores count as equal: where rounding decides which of two is a peak, those behind it take another place.
    """
    error = measure_relative_error(*(part[0].clamp(min=MIN_COMPARED_SCORE) for part in (outputs, expected)))
    if not is_repeated(expected):
        error = max(error, measure_relative_error(outputs[-1], expected[-1]))
    return error, error <= MAX_RELATIVE_ERROR and boxes_agree(expected, outputs) and boxes_agree(outputs, expected)


def is_repeated(outputs: Sequence[Tensor]) -> bool:
    """Return whether the features are the scores once more, as of a model without a last layer for its classes."""
    return torch.equal(outputs[0], outputs[-1])


def boxes_agree(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Return whether each expected box is among the boxes: of the same label, within a pixel, with that score."""
    scores, boxes, labels = expected[:3]
    other_scores, other_boxes, other_labels = (tensor[:, None] for tensor in outputs[:3])
    is_same = (
        (labels[..., None] == other_labels)
        & ((boxes[:, :, None] - other_boxes).abs().amax(-1) <= MAX_BOX_DIFFERENCE_PIXELS)
        & ((scores[..., None] - other_scores).abs() <= MAX_SCORE_DIFFERENCE)
    )
    return bool(torch.where(scores >= MIN_COMPARED_SCORE, is_same.any(-1), True).all())
