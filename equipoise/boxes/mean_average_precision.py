"""COCO's mean average precision of boxes, from one row of numbers for each picture.

A picture's row says which of its answers are right, so that pictures may be judged anywhere, in any number of parts;
the precision is then computed from the rows of all pictures in their order. As in pycocotools: overlaps 0.50 to 0.95,
101 points of recall, at most 100 answers for each class of a picture, answers in crowds do not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.boxes.matching import AREA_RANGES, OVERLAPS, match_answers
from equipoise.type_aliases import FloatArray

RECALL_POINTS = np.linspace(0, 1, 101)
FIRST_OVERLAP_ONLY, THIRD_QUARTER = 0, 5  # places of 0.50 and 0.75 among the overlaps
ANSWER_COLUMNS, TARGET_COLUMNS = 2 + len(AREA_RANGES), 2
BITS = 2 ** np.arange(2 * len(OVERLAPS), dtype=np.int64)


@dataclass(frozen=True)
class MeanAveragePrecision:
    """Mean average precision, from 0 to 1; NaN where there is nothing to find."""

    overall: float
    """mean over overlaps of 0.50 to 0.95 and over classes"""
    at_50: float
    """at an overlap of 0.50 alone"""
    at_75: float
    """at an overlap of 0.75 alone"""
    by_size: Mapping[str, float]
    """of small things (below 32 x 32 pixels), medium ones (below 96 x 96) and large ones"""
    by_class: Mapping[int, float]
    """of each class by its number; of those alone that occur"""


def match_pictures(detections: FloatArray, targets: FloatArray) -> FloatArray:
    """Return one row for each picture, of a width that depends only on how many answers and boxes a picture may have.

    Answers (n, k, 6) are x, y, width, height, score and class; boxes (n, g, 6) are class, x, y, width, height and
    whether it is a crowd. Unused places have the class -1.
    """
    detections, targets = np.nan_to_num(detections.astype(np.float64)), targets.astype(np.float64)
    count, num_answers = detections.shape[:2]
    labels, matched, ignored, is_counted = match_answers(detections, targets)
    flags = np.concatenate([matched, ignored], -1) @ BITS  # n, k, area ranges
    answers = np.concatenate([detections[..., 4:5], labels[..., None], flags], -1)
    counted = is_counted @ BITS[: len(AREA_RANGES)]
    boxes = np.stack([targets[..., 0], counted.astype(np.float64)], -1)
    return np.concatenate([np.full((count, 1), num_answers), answers.reshape(count, -1), boxes.reshape(count, -1)], 1)


def compute_precision(rows: FloatArray) -> MeanAveragePrecision:
    """Return the mean average precision of the pictures whose rows these are, in their order."""
    num_answers = int(rows[0, 0]) if len(rows) else 0
    answers = rows[:, 1 : 1 + ANSWER_COLUMNS * num_answers].reshape(-1, ANSWER_COLUMNS)
    boxes = rows[:, 1 + ANSWER_COLUMNS * num_answers :].reshape(-1, TARGET_COLUMNS)
    answers, boxes = answers[answers[:, 1] >= 0], boxes[boxes[:, 0] >= 0]
    counts = unpack_bits(boxes[:, 1], len(AREA_RANGES))
    classes = np.unique(boxes[:, 0])
    precision = np.stack(
        [average_by_overlap(answers[answers[:, 1] == label], counts[boxes[:, 0] == label]) for label in classes]
        or [np.full((len(AREA_RANGES), len(OVERLAPS)), np.nan)]
    )  # classes, area ranges, overlaps
    whole, *sizes = precision.transpose(1, 0, 2)
    return MeanAveragePrecision(
        overall=mean_of_known(whole),
        at_50=mean_of_known(whole[:, FIRST_OVERLAP_ONLY]),
        at_75=mean_of_known(whole[:, THIRD_QUARTER]),
        by_size={name: mean_of_known(values) for name, values in zip(list(AREA_RANGES)[1:], sizes, strict=True)},
        by_class={int(label): mean_of_known(values) for label, values in zip(classes, whole, strict=False)},
    )


def mean_of_known(values: FloatArray) -> float:
    """Return the mean of the values that are numbers; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def unpack_bits(values: FloatArray, count: int) -> NDArray[np.bool_]:
    """Return the lowest `count` bits of whole numbers as a further dimension."""
    return np.asarray((values.astype(np.int64)[..., None] & BITS[:count]) != 0)


def average_by_overlap(answers: FloatArray, counts: NDArray[np.bool_]) -> FloatArray:
    """Return the average precision of one class (area ranges, overlaps); NaN where there is nothing to find."""
    answers = answers[np.argsort(-answers[:, 0], kind="stable")]  # equal scores stay in the order of the pictures
    flags = unpack_bits(answers[:, 2:], 2 * len(OVERLAPS))  # answers, area ranges, bits
    matched, ignored = flags[..., : len(OVERLAPS)], flags[..., len(OVERLAPS) :]
    right = np.cumsum(matched & ~ignored, axis=0, dtype=np.float64)
    wrong = np.cumsum(~matched & ~ignored, axis=0, dtype=np.float64)
    result = np.full((len(AREA_RANGES), len(OVERLAPS)), np.nan)
    for area, overlap in np.ndindex(result.shape):
        if num_boxes := int(counts[:, area].sum()):
            result[area, overlap] = average_precision(right[:, area, overlap], wrong[:, area, overlap], num_boxes)
    return result


def average_precision(right: FloatArray, wrong: FloatArray, num_boxes: int) -> float:
    """Return the mean precision at 101 points of recall, from counts of right and wrong answers by falling score."""
    recall, precision = right / num_boxes, right / (wrong + right + np.spacing(1))
    precision = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or a higher one
    places = np.searchsorted(recall, RECALL_POINTS, side="left")
    return float(np.append(precision, 0.0)[places].mean())
