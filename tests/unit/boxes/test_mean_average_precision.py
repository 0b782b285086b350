"""Mean average precision, against COCO's own evaluation."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from equipoise.boxes.matching import AREA_RANGES, OVERLAPS
from equipoise.boxes.mean_average_precision import compute_precision, match_pictures

NUM_CLASSES = 4


def evaluate_with_pycocotools(detections, targets):
    """Return COCO's precision (overlaps, recalls, classes, area ranges) and its summary of twelve numbers."""
    annotations = [
        {
            "id": index + 1,
            "image_id": picture + 1,
            "category_id": int(box[0]),
            "bbox": box[1:5].tolist(),
            "area": float(box[3] * box[4]),
            "iscrowd": int(box[5]),
        }
        for index, (picture, box) in enumerate(
            (i, box) for i, boxes in enumerate(targets) for box in boxes if box[0] >= 0
        )
    ]
    results = [
        {"image_id": picture + 1, "category_id": int(box[5]), "bbox": box[:4].tolist(), "score": float(box[4])}
        for picture, answers in enumerate(detections)
        for box in answers
        if box[5] >= 0
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "info": {},
            "images": [{"id": picture + 1} for picture in range(len(targets))],
            "categories": [{"id": label} for label in range(NUM_CLASSES)],
            "annotations": annotations,
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.eval["precision"][..., 2], evaluation.stats


def make_pictures(rng, pictures=30, boxes=8, answers=20, scale=60.0, decimals=None):
    """Return random answers and boxes: near each other, of all sizes, with crowds and empty pictures."""
    targets = np.full((pictures, boxes, 6), -1.0)
    detections = np.full((pictures, answers, 6), -1.0)
    for picture in range(pictures):
        count = int(rng.integers(0, boxes + 1)) if picture % 5 else 0
        corners = rng.uniform(0, 2 * scale, (count, 2))
        sizes = scale * np.exp(rng.normal(0, 1, (count, 2)))
        labels, crowds = rng.integers(0, NUM_CLASSES, count), rng.random(count) < 0.15
        targets[picture, :count] = np.column_stack([labels, corners, sizes, crowds])
        number = int(rng.integers(0, answers + 1)) if picture % 7 else 0
        near = rng.integers(0, max(count, 1), number)
        for answer in range(number):
            box = targets[picture, near[answer]] if count else np.array([0, 5, 5, 20, 20, 0])
            moved = box[1:5] + rng.normal(0, 0.1, 4) * np.tile(box[3:5], 2)
            label = box[0] if rng.random() < 0.8 else rng.integers(0, NUM_CLASSES)
            detections[picture, answer] = [*moved[:2], *np.abs(moved[2:]), rng.random(), label]
    if decimals is not None:  # many equal scores, overlaps and areas
        detections[..., 4] = np.where(detections[..., 5] >= 0, detections[..., 4].round(decimals), -1)
        detections[..., :4], targets[..., 1:5] = detections[..., :4].round(), targets[..., 1:5].round().clip(0)
    return detections, targets


def check_against_pycocotools(detections, targets):
    result = compute_precision(match_pictures(detections, targets))
    precision, stats = evaluate_with_pycocotools(detections, targets)
    expected = [stats[0], stats[1], stats[2], *stats[3:6]]
    actual = [
        result.overall,
        result.at_50,
        result.at_75,
        *(result.by_size[name] for name in ("small", "medium", "large")),
    ]
    for value, reference in zip(actual, expected, strict=True):
        assert np.isnan(value) if reference == -1 else abs(value - reference) <= 1e-12
    for label in range(NUM_CLASSES):
        values = precision[:, :, label, 0]
        if (values > -1).any():
            assert abs(result.by_class[label] - values[values > -1].mean()) <= 1e-12
        else:
            assert np.isnan(result.by_class.get(label, np.nan))
    return result


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decimals", [None, 1])
def test_it_equals_pycocotools_on_random_answers(seed, decimals):
    result = check_against_pycocotools(*make_pictures(np.random.default_rng(seed), decimals=decimals))
    assert 0.05 < result.overall < 0.95


def test_at_most_100_answers_of_a_class_and_picture_count():
    check_against_pycocotools(*make_pictures(np.random.default_rng(5), pictures=6, boxes=60, answers=260, scale=20.0))


def test_right_answers_have_the_precision_1_and_no_answers_0():
    _, targets = make_pictures(np.random.default_rng(1))
    targets[..., 5] = np.minimum(targets[..., 5], 0)
    answers = np.concatenate([targets[..., 1:5], np.full((*targets.shape[:2], 1), 0.5), targets[..., :1]], -1)
    assert check_against_pycocotools(answers, targets).overall == pytest.approx(1)
    answers[..., 5] = -1
    result = compute_precision(match_pictures(answers, targets))
    assert result.overall == 0 and set(result.by_class.values()) == {0.0}


def test_without_anything_to_find_the_precision_is_unknown():
    detections, targets = make_pictures(np.random.default_rng(2))
    targets[..., 0] = -1
    result = compute_precision(match_pictures(detections, targets))
    assert np.isnan([result.overall, result.at_50, *result.by_size.values()]).all() and not result.by_class


def test_rows_of_parts_are_rows_of_all_pictures():
    detections, targets = make_pictures(np.random.default_rng(3))
    rows = match_pictures(detections, targets)
    parts = [match_pictures(detections[part], targets[part]) for part in (slice(0, 7), slice(7, 8), slice(8, None))]
    assert np.array_equal(np.concatenate(parts), rows)
    assert np.isfinite(rows).all() and rows.shape[1] == 1 + 6 * 20 + 2 * 8
    assert len(OVERLAPS) == 10 and len(AREA_RANGES) == 4


def test_answers_that_are_not_numbers_match_nothing():
    detections, targets = make_pictures(np.random.default_rng(4))
    detections[..., :5] = np.nan
    rows = match_pictures(detections, targets)
    assert np.isfinite(rows).all() and compute_precision(rows).overall == 0
