"""Accuracy without labels, on a profile whose numbers are set by hand: each estimate follows its closed form."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.diagnosis.accuracy_estimate import (
    AccuracyEstimate,
    accuracy_from_signature,
    accuracy_under_label_shift,
    estimate_accuracy,
    interpolate_response,
    matches_signature,
    reference_accuracy,
)
from equipoise.drift.diagnosis.cause import Cause
from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.statistic_schema import build_schema
from equipoise.drift.reference.profile import ConditionAccuracy
from equipoise.drift.reference.signatures import Signatures
from equipoise.proportions import Z_95, wilson_interval
from tests.support.quick_profile import build_quick_profile

LOG_ODDS = IMAGE_SCHEMA.names.index("log odds")
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])
CONFUSION = 0.9 * np.eye(4) + 0.025  # of each class, nine in ten and a bit are right
SIZES, ACCURACIES, ODDS = np.array([-1.0, -2.0, -3.0]), np.array([0.9, 0.7, 0.4]), np.array([-0.5, -1.0, -2.0])


def build_signatures():
    """Build the signatures of darker images, at three sizes, after those of a blur of one size."""
    scores = np.zeros((4, len(IMAGE_SCHEMA)))
    scores[1:, LOG_ODDS] = ODDS
    return Signatures(
        kind=np.array([0, 1, 1, 1]),
        names=np.array([["blur", "", "pixels"], ["exposure", "darker", "stops"]]),
        none=np.array([0.0, 0.0]),
        size=np.array([1.0, *SIZES]),
        scores=scores,
        shifts=np.zeros_like(scores),
        accuracy=np.array([0.8, *ACCURACIES]),
        clean=np.array([0.96]),
        tried=np.array(400),
    )


def build_profile(**changes):
    profile = build_quick_profile()
    labelled = replace(profile.labelled, prior=PRIOR, confusion=CONFUSION)
    return replace(profile, labelled=labelled, signatures=build_signatures(), **changes)


def build_window(counts=(80.0, 60.0, 40.0, 20.0), log_odds=0.0, **changes):
    scores = np.zeros(len(IMAGE_SCHEMA))
    scores[LOG_ODDS] = log_odds
    return Window(build_profile(**changes), np.array(counts), scores, np.zeros(len(IMAGE_SCHEMA)))


def build_effect(place=2.0, value=-2.0, low=-2.2, high=-1.8, kind=1, explained=0.9):
    return Effect("exposure", "darker", "stops", value, low, high, explained, kind, place)


def test_accuracy_on_the_reference_is_that_of_its_confusion():
    window = build_window()
    estimate = reference_accuracy(window)
    count = window.profile.baseline.usual.counts.sum()
    assert estimate.value == pytest.approx(0.925)
    assert (estimate.low, estimate.high) == wilson_interval(estimate.value, count)
    assert estimate.half_width == pytest.approx((estimate.high - estimate.low) / 2)


def build_two_conditions(first, second, correct=(90, 40), labelled=(100, 50)):
    """Build a window with so many images of each of two conditions."""
    accuracy = ConditionAccuracy(np.array(labelled), np.array(correct))
    return build_window(np.repeat([first / 4, second / 4], 4), condition_accuracy=accuracy)


def test_accuracy_on_the_reference_is_that_of_its_mix_of_conditions():
    estimate = reference_accuracy(build_two_conditions(300.0, 100.0))
    assert estimate.value == pytest.approx(0.75 * 0.9 + 0.25 * 0.8)
    effective = 1 / (0.75**2 / 100 + 0.25**2 / 50)
    assert (estimate.low, estimate.high) == pytest.approx(wilson_interval(estimate.value, effective))


def test_condition_of_less_than_a_fiftieth_is_left_out_and_one_without_labels_has_no_accuracy():
    assert reference_accuracy(build_two_conditions(981.0, 19.0)).value == pytest.approx(0.9)
    few = reference_accuracy(build_two_conditions(979.0, 21.0))
    assert few.value == pytest.approx(0.979 * 0.9 + 0.021 * 0.8)
    assert reference_accuracy(build_two_conditions(979.0, 21.0, (90, 0), (100, 0))) is None
    assert reference_accuracy(build_two_conditions(981.0, 19.0, (90, 0), (100, 0))).value == pytest.approx(0.9)


def test_accuracy_under_label_shift_is_the_precision_of_what_is_predicted():
    window = build_window((0.0, 0.0, 0.0, 300.0))
    predicted = CONFUSION @ PRIOR
    assert accuracy_under_label_shift(window).value == pytest.approx(0.925 * 0.1 / predicted[3])
    mixed = build_window((100.0, 0.0, 0.0, 300.0))
    expected = 0.25 * 0.925 * 0.4 / predicted[0] + 0.75 * 0.925 * 0.1 / predicted[3]
    estimate = accuracy_under_label_shift(mixed)
    assert estimate.value == pytest.approx(expected)
    assert (estimate.low, estimate.high) == wilson_interval(estimate.value, mixed.effective_sample_size)


@pytest.mark.parametrize(("position", "value"), [(0, 0.0), (0.5, 1.5), (1, 3.0), (2, 5.0), (1.25, 3.5), (3, 5.0)])
def test_response_lies_on_the_line_between_sizes(position, value):
    assert interpolate_response(np.array([3.0, 5.0]), 0.0, position) == pytest.approx(value)


@pytest.mark.parametrize("place", [1.0, 1.5, 2.9])
def test_model_must_be_as_confident_as_it_was_under_the_same_change(place):
    expected = np.interp(place, [1, 2, 3], ODDS)
    margin = 0.35 + Z_95 / np.sqrt(build_window().effective_sample_size)
    for sign in (-1, 1):
        for factor, matches in ((0.99, True), (1.01, False)):
            window = build_window(log_odds=expected + sign * factor * margin)
            assert matches_signature(window, build_effect(place)) == matches


def test_size_at_the_end_of_those_tried_is_not_matched_unless_it_is_the_only_one():
    assert not matches_signature(build_window(log_odds=ODDS[2]), build_effect(3.0))
    assert matches_signature(build_window(), build_effect(1.0, kind=0))


@pytest.mark.parametrize(("value", "low", "high"), [(-1.5, -1.7, -1.3), (-2.0, -2.5, -1.0), (-0.5, -0.6, -0.4)])
def test_accuracy_is_that_of_the_same_change_with_the_errors_of_size_loss_and_count(value, low, high):
    estimate = accuracy_from_signature(build_profile(), build_effect(value=value, low=low, high=high))
    at = {size: np.interp(-size, [0, 1, 2, 3], [0.96, *ACCURACIES]) for size in (value, low, high)}
    wilson = wilson_interval(at[value], 400)
    margin = 0.15 * (0.96 - at[value]) + (wilson[1] - wilson[0]) / 2
    assert estimate.value == pytest.approx(at[value])
    assert (estimate.low, estimate.high) == pytest.approx((at[low] - margin, min(at[high] + margin, 1)))


def test_interval_of_an_accuracy_ends_at_nothing_and_everything():
    profile = build_profile()
    signatures = replace(build_signatures(), accuracy=np.array([0.8, 0.02, 0.01, 0.0]), clean=np.array([1.0]))
    estimate = accuracy_from_signature(replace(profile, signatures=signatures), build_effect())
    assert estimate.low == 0 and estimate.high < 0.4
    assert accuracy_from_signature(replace(profile, signatures=signatures), build_effect(0.1, -0.1, -0.2, 0)).high == 1


MATCHING = {"log_odds": -1.0}


@pytest.mark.parametrize(
    ("cause", "options", "value"),
    [
        (None, {}, 0.925),
        (Cause("label shift", ""), {}, 0.925),
        (Cause("answer", ""), {}, 0.925),
        (Cause("features", ""), MATCHING, None),
        (Cause("exposure", "", (build_effect(),)), MATCHING, 0.7),
        (Cause("exposure", "", (build_effect(),)), {"log_odds": 1.0}, None),
        (Cause("exposure", "", (build_effect(explained=0.81), build_effect())), MATCHING, 0.7),
        (Cause("exposure", "", (build_effect(explained=0.79), build_effect())), MATCHING, None),
        (Cause("exposure", "", (build_effect(explained=0.3),)), MATCHING, 0.7),
    ],
)
def test_accuracy_is_estimated_for_causes_that_were_tried(cause, options, value):
    counts = 200 * CONFUSION @ PRIOR  # as on the reference
    estimate = estimate_accuracy(build_window(counts, **options), cause)
    assert (estimate and estimate.value) == (value and pytest.approx(value))


def test_number_has_no_accuracy_and_that_of_moved_rows_is_not_known():
    window = build_window()
    for has_accuracy, cause, is_known in (
        (False, None, False),
        (True, None, True),
        (True, Cause("column x", "", (build_effect(),)), False),
    ):
        schema = build_schema("table", [], [], has_accuracy=has_accuracy)
        baseline = replace(window.profile.baseline, schema=schema)
        rows = replace(window, profile=replace(window.profile, baseline=baseline))
        assert (estimate_accuracy(rows, cause) is not None) == is_known


def test_half_width_is_half_of_the_interval():
    assert AccuracyEstimate(0.5, 0.4, 0.7).half_width == pytest.approx(0.15)
