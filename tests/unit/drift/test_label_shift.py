from functools import cache

import numpy as np
import pytest

from equipoise.drift.stats.density_ratio import ImportanceWeights, estimate_density_ratio
from equipoise.drift.stats.label_shift import estimate_label_shift, residual_shift_test
from equipoise.drift.stats.two_sample_tests import mmd_permutation_test

OLD_PRIOR, NEW_PRIOR = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
CLASS_CENTRES = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0], [2, 2, 0]])  # the last feature is the same for all classes


def draw_features(prior, count, seed, offset=0.0):
    """Return features around one centre per class, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, count, p=prior)
    return CLASS_CENTRES[labels] + rng.normal(0, 0.7, (count, 3)) + offset, labels


def compute_logits(features):
    """Return the logits whose softmax is the exact posterior under the old prior."""
    return -((features[:, None] - CLASS_CENTRES) ** 2).sum(2) / (2 * 0.7**2) + np.log(OLD_PRIOR)


@cache
def measure_confusion():
    """Return the share of each true class (column) predicted as each class (row), on 20,000 examples."""
    features, labels = draw_features(OLD_PRIOR, 20_000, 2)
    predicted = np.eye(4)[compute_logits(features).argmax(1)]
    return np.stack([predicted[labels == label].mean(0) for label in range(4)], 1)


def estimate_weights(features):
    """Estimate new prior over old from the predicted classes of a window."""
    predicted_counts = np.bincount(compute_logits(features).argmax(1), minlength=4)
    return estimate_label_shift(measure_confusion(), OLD_PRIOR, predicted_counts)


def test_known_class_shares_are_recovered():
    shift = estimate_weights(draw_features(NEW_PRIOR, 6000, 1)[0])
    np.testing.assert_allclose(shift.weights * OLD_PRIOR, NEW_PRIOR, atol=0.03)
    assert shift.is_identifiable


def test_confusion_is_inverted():
    confusion = np.array([[0.9, 0.2], [0.1, 0.8]])
    shift = estimate_label_shift(confusion, np.array([0.5, 0.5]), confusion @ [0.25, 0.75])
    np.testing.assert_allclose(shift.weights, [0.5, 1.5])
    assert shift.min_singular_value == pytest.approx(np.linalg.svd(confusion)[1][-1]) and shift.is_identifiable


def test_weights_are_never_negative_and_give_shares_that_sum_to_1():
    confusion = np.array([[0.9, 0.2], [0.1, 0.8]])
    np.testing.assert_allclose(estimate_label_shift(confusion, np.array([0.5, 0.5]), np.array([0, 10])).weights, [0, 2])


def test_classes_with_equal_predictions_are_not_identifiable_and_share_one_weight():
    confusion = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    shift = estimate_label_shift(confusion, np.array([0.4, 0.4, 0.2]), np.array([0.2, 0.2, 0.6]))
    assert not shift.is_identifiable and shift.min_singular_value == pytest.approx(0, abs=1e-12)
    assert shift.weights[0] == pytest.approx(shift.weights[1])
    np.testing.assert_allclose(shift.weights, [0.5, 0.5, 3], atol=0.05)


def measure_rejection_rates(prior, offset):
    """Return the share of 40 windows with p of 0.05 or less, before and after weighting the reference."""
    p_values = []
    for seed in range(40):
        reference, labels = draw_features(OLD_PRIOR, 1200, 1000 + seed)
        window, _ = draw_features(prior, 300, seed, offset)
        after = residual_shift_test(reference, labels, estimate_weights(window).weights, window, 99, seed)
        p_values.append((mmd_permutation_test(reference, window, 99, seed).p_value, after.p_value))
    return (np.array(p_values) <= 0.05).mean(0)


def test_label_shift_is_explained_by_class_shares():
    before, after = measure_rejection_rates(NEW_PRIOR, 0.0)
    assert before == 1 and after <= 0.1


@pytest.mark.parametrize("prior", [OLD_PRIOR, NEW_PRIOR])
def test_covariate_shift_is_not_explained_by_class_shares(prior):
    assert measure_rejection_rates(prior, 0.6)[1] > 0.9


def test_weights_of_a_single_class_reduce_the_reference_to_that_class():
    p_values = []
    for seed in range(60):
        features, labels = draw_features(OLD_PRIOR, 1000, 1000 + seed)
        window, _ = draw_features(np.eye(4)[3], 100, seed)
        p_values.append(residual_shift_test(features, labels, np.eye(4)[3] * 10, window, 99, seed).p_value)
    assert np.mean(np.array(p_values) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert residual_shift_test(features, labels, np.ones(4), window, 99).p_value == 0.01


def test_effective_sample_size_is_all_for_equal_weights_and_1_for_a_single_one():
    assert ImportanceWeights(np.full(10, 3.0)).effective_sample_size == pytest.approx(10)
    assert (
        ImportanceWeights(np.eye(10)[0]).effective_sample_size == 1
        and ImportanceWeights(np.eye(10)[0]).is_outside_reference
    )
    assert not ImportanceWeights(np.repeat([1.0, 0.0], [2, 8])).is_outside_reference


@pytest.mark.parametrize("columns", [2, 64])
def test_window_without_drift_keeps_the_weight_of_every_example(columns):
    rng = np.random.default_rng(0)
    ratio = estimate_density_ratio(rng.normal(0, 1, (1000, columns)), rng.normal(0, 1, (200, columns)))
    assert ratio.effective_sample_size > 900 and not ratio.is_outside_reference
    assert ratio.weights.mean() == pytest.approx(1, abs=0.1)


def test_weights_are_the_ratio_of_two_known_densities():
    rng = np.random.default_rng(0)
    reference, window = rng.normal(0, 1, (4000, 1)), rng.normal(0.7, 1, (2000, 1))
    ratio, expected = estimate_density_ratio(reference, window), np.exp(0.7 * reference[:, 0] - 0.7**2 / 2)
    np.testing.assert_allclose(np.log(ratio.weights), np.log(expected), atol=0.35)
    assert (
        ratio.effective_sample_size == pytest.approx(4000 * np.exp(-(0.7**2)), rel=0.15)
        and not ratio.is_outside_reference
    )
    assert np.average(reference[:, 0], weights=ratio.weights) == pytest.approx(0.7, abs=0.1)


def test_distant_window_is_outside_the_reference():
    rng = np.random.default_rng(0)
    assert estimate_density_ratio(rng.normal(0, 1, (500, 4)), rng.normal(4, 1, (200, 4))).is_outside_reference


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_label_shift(np.eye(2), np.array([1.0, 0.0]), np.ones(2)), "share above 0"),
        (lambda: estimate_label_shift(np.eye(3), OLD_PRIOR, OLD_PRIOR), "both for 4 classes"),
        (lambda: estimate_label_shift(np.ones((4, 4)), OLD_PRIOR, OLD_PRIOR), "do not sum to 1"),
        (lambda: estimate_label_shift(np.eye(4), OLD_PRIOR, np.zeros(4)), "not all 0"),
        (
            lambda: residual_shift_test(np.ones((5, 2)), np.zeros(4, int), np.ones(2), np.ones((5, 2))),
            "one class to each",
        ),
        (lambda: residual_shift_test(np.ones((5, 2)), np.zeros(5, int), np.zeros(2), np.ones((5, 2))), "weights are"),
        (lambda: residual_shift_test(np.ones((5, 2)), np.zeros(5, int), np.ones(2), np.ones((5, 3))), "2 columns"),
        (
            lambda: residual_shift_test(np.ones((5, 2)), np.arange(5), np.eye(5)[0], np.ones((5, 2))),
            "leave 1 reference",
        ),
        (lambda: estimate_density_ratio(np.ones((5, 2)), np.ones((1, 2))), "at least 2 rows"),
        (lambda: estimate_density_ratio(np.ones((5, 2)), np.ones((4, 2))), "at least 5 of each"),
    ],
)
def test_unusable_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_two_reference_examples_are_enough_for_a_residual_test():
    features, labels = np.arange(8.0)[:, None], np.array([0, 0, 1, 1, 1, 1, 1, 1])
    assert 0 < residual_shift_test(features, labels, np.array([1.0, 0.0]), features, 9).p_value <= 1
