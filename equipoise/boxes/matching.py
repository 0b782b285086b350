"""Which answers of a detector match which boxes: the rules of COCO's evaluation, by overlap and by size of things."""

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import FloatArray, IntArray

OVERLAPS = np.linspace(0.5, 0.95, 10)  # intersection over union that an answer needs
AREA_RANGES = {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}
"""square pixels of things, from and to, both included"""
MAX_ANSWERS = 100  # for each class of a picture
LOWEST, HIGHEST = np.array(list(AREA_RANGES.values()), np.float64).T

BoolArray = NDArray[np.bool_]


def match_answers(detections: FloatArray, targets: FloatArray) -> tuple[FloatArray, BoolArray, BoolArray, BoolArray]:
    """Match answers (n, k, 6) with boxes (n, g, 6); return four arrays, where `a` are area ranges and `t` overlaps.

    They are the class of each answer, -1 if it is unused (n, k), whether it matches a box and whether it is ignored
    (n, k, a, t), and whether each box counts (n, g, a).
    """
    labels = keep_best_answers(detections[..., 4], detections[..., 5])
    areas, target_areas = (values[..., 0] * values[..., 1] for values in (detections[..., 2:4], targets[..., 3:5]))
    is_crowd, is_used = targets[..., 5] > 0, targets[..., 0] >= 0
    is_counted = (is_used & ~is_crowd)[..., None] & within_ranges(target_areas)
    same_class = (labels[..., None] == targets[:, None, :, 0]) & is_used[:, None]
    overlaps = np.where(same_class, compute_overlaps(detections[..., :4], targets[..., 1:5], is_crowd), 0.0)
    matched = np.zeros((*labels.shape, len(AREA_RANGES), len(OVERLAPS)), bool)
    ignored = np.zeros_like(matched)
    has_match = overlaps.max(-1, initial=0.0) >= OVERLAPS[0]
    order = np.argsort(-detections[..., 4], axis=1, kind="stable")
    for picture in np.flatnonzero(has_match.any(1)):
        answers = order[picture][has_match[picture][order[picture]]]
        found, passed = match_one_picture(overlaps[picture, answers], is_counted[picture], is_crowd[picture])
        matched[picture, answers], ignored[picture, answers] = found, passed
    ignored |= ~matched & ~within_ranges(areas)[..., None]
    return labels, matched, ignored, is_counted


def within_ranges(areas: FloatArray) -> BoolArray:
    """Return whether areas lie in each of the ranges, as a further dimension."""
    return np.asarray((areas[..., None] >= LOWEST) & (areas[..., None] <= HIGHEST))


def keep_best_answers(scores: FloatArray, labels: FloatArray) -> FloatArray:
    """Return the classes of answers, with -1 for those beyond the best 100 of a class in a picture."""
    if labels.shape[1] <= MAX_ANSWERS:
        return labels
    order = np.argsort(-scores, axis=1, kind="stable")
    sorted_labels = np.take_along_axis(labels, order, 1)
    kept = labels.copy()
    for picture, row in enumerate(sorted_labels):
        for label in np.unique(row):
            kept[picture, order[picture][row == label][MAX_ANSWERS:]] = -1
    return kept


def compute_overlaps(boxes: FloatArray, others: FloatArray, is_crowd: BoolArray) -> FloatArray:
    """Return intersection over union of boxes (n, k, 4) with others (n, g, 4); with a crowd, over the box alone."""
    first, second = boxes[:, :, None], others[:, None]
    starts, ends = (
        np.maximum(first, second),
        np.minimum(first[..., :2] + first[..., 2:], second[..., :2] + second[..., 2:]),
    )
    sides = np.clip(ends - starts[..., :2], 0, None)
    intersection = sides[..., 0] * sides[..., 1]
    area, other_area = first[..., 2] * first[..., 3], second[..., 2] * second[..., 3]
    union = np.where(is_crowd[:, None], area, area + other_area - intersection)
    return np.asarray(np.divide(intersection, union, out=np.zeros_like(intersection), where=union > 0))


def match_one_picture(overlaps: FloatArray, is_counted: BoolArray, is_crowd: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Match the answers of a picture by falling score with its boxes; return whether each matches, and is ignored.

    An answer takes the box with which it overlaps most, among those that count if there is one, and that no better
    answer has taken; a crowd takes any number of answers.
    """
    counted = is_counted.T[:, None]  # area ranges, 1, boxes
    shape = len(AREA_RANGES), len(OVERLAPS), overlaps.shape[1]
    is_free = np.ones(shape, bool)
    matched = np.zeros((len(overlaps), *shape[:2]), bool)
    ignored = np.zeros_like(matched)
    for answer, values in enumerate(overlaps):
        fits = is_free & (values >= OVERLAPS[:, None])
        best, is_found = pick_largest(np.where(fits & counted, values, -1.0))
        spare, is_spare = pick_largest(np.where(fits & ~counted, values, -1.0))
        place = np.where(is_found, best, spare)
        matched[answer], ignored[answer] = is_found | is_spare, ~is_found & is_spare
        taken = (np.arange(shape[2]) == place[..., None]) & matched[answer][..., None] & ~is_crowd
        is_free &= ~taken
    return matched, ignored


def pick_largest(values: FloatArray) -> tuple[IntArray, BoolArray]:
    """Return the last place of the largest value along the last dimension, and whether that is at least 0."""
    place = values.shape[-1] - 1 - values[..., ::-1].argmax(-1)
    return place, np.take_along_axis(values, place[..., None], -1)[..., 0] >= 0
