import pytest
import torch

from equipoise.bundle.kinds.box_agreement import compare_boxes

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


def test_features_that_are_the_scores_are_compared_as_scores():
    scores = torch.tensor([[0.9, 0.8, 0.05]])
    noisy = torch.tensor([[0.9, 0.8, 0.06]])
    assert compare_boxes((scores, BOXES, LABELS, scores), (noisy, BOXES, LABELS, noisy)) == (0.0, True)
    assert not compare_boxes((scores, BOXES, LABELS, FEATURES), (noisy, BOXES, LABELS, noisy[:, :1]))[1]
