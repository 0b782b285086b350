import pytest
import torch

from equipoise.bundle.kinds.box_agreement import MAX_SCORE_DIFFERENCE, compare_boxes, may_be_rounding

SCORES = torch.tensor([[0.9, 0.8, 0.05]])
BOXES = torch.tensor([[[1.0, 2, 30, 40], [50, 60, 10, 20], [5, 5, 5, 5]]])
LABELS = torch.tensor([[0, 1, 1]])
FEATURES = torch.ones(1, 4)
EXPECTED = (SCORES, BOXES, LABELS, FEATURES)


def change(tensor, index, amount):
    changed = tensor.clone()
    changed[index] += amount
    return changed


@pytest.mark.parametrize(
    ("outputs", "agrees"),
    [
        (EXPECTED, True),
        ((SCORES, change(BOXES, (0, 0, 2), 0.9), LABELS, FEATURES), True),
        ((SCORES, change(BOXES, (0, 0, 2), 1.1), LABELS, FEATURES), False),
        ((SCORES, BOXES, change(LABELS, (0, 0), 1), FEATURES), False),
        ((SCORES, change(BOXES, (0, 2, 0), 9.0), change(LABELS, (0, 2), -1), FEATURES), True),  # noise
        ((change(SCORES, (0, 2), 3e-3), BOXES, LABELS, FEATURES), True),  # a further peak among the noise
        ((change(SCORES, (0, 2), 0.5), BOXES, LABELS, FEATURES), False),
        ((change(SCORES, (0, 1), 1e-2), BOXES, LABELS, FEATURES), False),
        ((SCORES, BOXES, LABELS, change(FEATURES, (0, 1), 1e-3)), False),
    ],
)
def test_boxes_agree_within_a_pixel_and_with_their_labels(outputs, agrees):
    assert compare_boxes(EXPECTED, outputs)[1] is agrees


def test_equal_scores_may_change_places():
    scores = torch.tensor([[0.9, 0.9, 0.05]])
    order = torch.tensor([1, 0, 2])
    error, agrees = compare_boxes(
        (scores, BOXES, LABELS, FEATURES), (scores, BOXES[:, order], LABELS[:, order], FEATURES)
    )
    assert error == 0 and agrees


def test_box_that_only_one_engine_finds_is_no_agreement():
    outputs = (SCORES, BOXES.clone(), LABELS, FEATURES)
    outputs[1][0, 1] = outputs[1][0, 0]
    assert not compare_boxes(outputs, EXPECTED)[1] and not compare_boxes(EXPECTED, outputs)[1]


def rank(*answers):
    """Return the outputs for one image from answers (score, x, label), of 40 pixels per side."""
    scores, x, labels = zip(*sorted(answers, reverse=True), strict=True)
    boxes = torch.tensor([[[left, 10.0, 40, 40] for left in x]])
    return torch.tensor([scores]), boxes, torch.tensor([labels]), FEATURES


OTHERS = [(0.9 - 0.005 * place, 100.0 * place, place % 2) for place in range(1, 101)]
NOISE = (0.01, 50000.0, 0), (0.01, 50000.0, 0)


def test_rounding_may_choose_the_other_of_two_places_or_both():
    first, second = (0.8000001, 30000.0, 0), (0.8, 30008.0, 0)  # places beside each other, of one thing
    one, other, both = rank(*OTHERS, first, *NOISE), rank(*OTHERS, second, *NOISE), rank(*OTHERS, first, second)
    for expected, outputs in ((one, other), (one, both), (both, other)):
        padded = [part[:, : len(expected[0][0])] for part in outputs[:3]]
        error, agrees = compare_boxes(expected, (*padded, FEATURES))
        assert agrees and error < 1e-6


@pytest.mark.parametrize(
    "change",
    [
        (0.8, 40000.0, 0),  # nothing that overlaps it has taken its place
        (0.8, 30008.0, 1),  # a box of another class
        (0.7, 30008.0, 0),  # a box of a lower score
    ],
)
def test_box_that_rounding_cannot_explain_is_no_agreement(change):
    expected, outputs = rank(*OTHERS, (0.8, 30000.0, 0), *NOISE), rank(*OTHERS, change, *NOISE)
    assert not compare_boxes(expected, outputs)[1] and not compare_boxes(outputs, expected)[1]


def test_rounding_does_not_explain_many_boxes():
    suppressed = [(score - 0.2, x + 8, label) for score, x, label in OTHERS[:2]]
    expected, outputs = rank(*OTHERS, *suppressed), rank(*OTHERS, *NOISE)  # as with another limit of overlaps
    assert not compare_boxes(expected, outputs)[1]
    expected, outputs = rank(*OTHERS, suppressed[0], NOISE[0]), rank(*OTHERS, *NOISE)
    assert compare_boxes(expected, outputs)[1]


def test_rounding_explains_nothing_among_few_boxes():
    expected, outputs = (rank(*OTHERS[:20], (0.8, x, 0), *NOISE) for x in (30000.0, 30008.0))
    assert not compare_boxes(expected, outputs)[1]


def test_last_of_as_many_boxes_as_there_are_may_be_another_one():
    expected, outputs = rank(*OTHERS, (0.3, 30000.0, 0)), rank(*OTHERS, (0.3, 40000.0, 1))
    assert compare_boxes(expected, outputs)[1]


def test_scores_are_compared_box_by_box():
    changed = [(score * (1 + 2e-5), x, label) for score, x, label in OTHERS]
    error, agrees = compare_boxes(rank(*OTHERS), rank(*changed))
    assert error == pytest.approx(2e-5, rel=0.05) and not agrees


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_outputs_that_are_no_numbers_are_no_agreement(value):
    broken = (torch.full_like(SCORES, value), BOXES, LABELS, FEATURES)
    for expected, outputs in ((EXPECTED, broken), (broken, EXPECTED), (broken, broken)):
        assert not compare_boxes(expected, outputs)[1]


def test_features_that_are_the_scores_are_compared_as_scores():
    scores = torch.tensor([[0.9, 0.8, 0.05]])
    noisy = torch.tensor([[0.9, 0.8, 0.06]])
    assert compare_boxes((scores, BOXES, LABELS, scores), (noisy, BOXES, LABELS, noisy)) == (0.0, True)
    assert not compare_boxes((scores, BOXES, LABELS, FEATURES), (noisy, BOXES, LABELS, noisy[:, :1]))[1]


@pytest.mark.parametrize(("below", "is_as_good"), [(MAX_SCORE_DIFFERENCE, True), (2 * MAX_SCORE_DIFFERENCE, False)])
def test_box_that_took_the_place_of_another_scores_no_less_than_rounding_explains(below, is_as_good):
    score, box, label = torch.tensor(0.5, dtype=torch.float64), BOXES[0, 0], LABELS[0, 0]
    others = torch.stack([score - below, score - 0.4]), BOXES[0, :2], LABELS[0, :2]
    assert may_be_rounding(score, box, label, *others) == is_as_good
