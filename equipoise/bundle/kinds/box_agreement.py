"""Whether two engines find the same boxes: rounding moves a box by a fraction of a pixel, and decides between equals.

A detector chooses its answers: a place is one if its score is the highest around, a box if it overlaps no better one by
more than a limit. Engines differ by some 1e-6 of a score, so that now and then one of them chooses the other of two
places of the same score. All answers behind it then take another rank, so answers are compared with those of the same
thing, not with those of the same rank: by rank, one such choice in thousands looks like a difference of 1e-3.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.bundle.engine_benchmark import MAX_RELATIVE_ERROR, measure_relative_error

MIN_COMPARED_SCORE = 0.1  # boxes with lower scores are noise, of which rounding decides the order
MAX_BOX_DIFFERENCE_PIXELS = 1.0
MAX_SCORE_DIFFERENCE = 1e-3
MIN_BOXES_PER_MISSING, MIN_BOXES_TO_MISS_ONE = 1000, 100
"""boxes for each that only one engine may find, and for the first: noise as that of rounding decided about none of
60,000 boxes of a shelf, a wrong operator decides about many"""


def compare_boxes(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[float, bool]:
    """Return the largest relative error of scores and features, and whether the boxes are the same.

    Both sequences hold scores (images, boxes) from high to low, boxes (images, boxes, 4), labels and features. The
    error of scores is that of boxes which both engines find, relative to the highest score.
    """
    if not all(bool(part.isfinite().all()) for part in (*expected, *outputs)):
        return float("inf"), False
    differences = match_boxes(expected, outputs), match_boxes(outputs, expected)
    matched = torch.cat([values[values.isfinite()] for values in differences])
    error = float(matched.max() / expected[0].max()) if len(matched) else 0.0
    if not is_repeated(expected):
        error = max(error, measure_relative_error(outputs[-1], expected[-1]))
    agrees = boxes_agree(differences[0], expected, outputs) and boxes_agree(differences[1], outputs, expected)
    return error, error <= MAX_RELATIVE_ERROR and agrees


def is_repeated(outputs: Sequence[Tensor]) -> bool:
    """Return whether the features are the scores once more, as of a model without a last layer for its classes."""
    return torch.equal(outputs[0], outputs[-1])


def match_boxes(expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
    """Return how far the score of each expected box is from that of the same box among the outputs: (images, boxes).

    It is infinite for a box without such a one, of its label, within a pixel and about its score, and NaN for a box
    that is not compared.
    """
    scores, boxes, labels = expected[:3]
    other_scores, other_boxes, other_labels = (tensor[:, None] for tensor in outputs[:3])
    difference = (scores[..., None] - other_scores).abs()
    is_same = (
        (labels[..., None] == other_labels)
        & ((boxes[:, :, None] - other_boxes).abs().amax(-1) <= MAX_BOX_DIFFERENCE_PIXELS)
        & (difference <= MAX_SCORE_DIFFERENCE)
    )
    nearest = torch.where(is_same, difference, torch.inf).amin(-1)
    return torch.where(scores >= MIN_COMPARED_SCORE, nearest, torch.nan)


def boxes_agree(differences: Tensor, expected: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Return whether the outputs hold all expected boxes but for a few of which rounding may have decided."""
    missing = differences.isinf()
    compared = int((~differences.isnan()).sum())
    allowed = max(int(compared >= MIN_BOXES_TO_MISS_ONE), compared // MIN_BOXES_PER_MISSING)
    return int(missing.sum()) <= allowed and all(
        may_be_rounding(*(part[image, box] for part in expected[:3]), *(part[image] for part in outputs[:3]))
        for image, box in missing.nonzero().tolist()
    )


def may_be_rounding(
    score: Tensor, box: Tensor, label: Tensor, other_scores: Tensor, other_boxes: Tensor, other_labels: Tensor
) -> bool:
    """Return whether rounding may be why a box is not among the other boxes of its image.

    Either one of these has taken its place, which overlaps it with at least about its score; or there are as many boxes
    as a detector returns, none of a lower score.
    """
    starts, ends = torch.maximum(box[:2], other_boxes[:, :2]), torch.minimum(box[:2] + box[2:], ends_of(other_boxes))
    is_as_good = other_scores >= score - MAX_SCORE_DIFFERENCE
    takes_its_place = (other_labels == label) & (starts < ends).all(-1) & is_as_good
    return bool(takes_its_place.any() | is_as_good.all())


def ends_of(boxes: Tensor) -> Tensor:
    """Return the right and the bottom side of boxes (boxes, 4)."""
    return boxes[:, :2] + boxes[:, 2:]
