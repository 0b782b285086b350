import numpy as np
import pytest
from scipy.special import softmax

from equipoise.bundle.evaluation import confusion_matrix
from equipoise.drift.stats.density_ratio import ImportanceWeights, estimate_density_ratio
from equipoise.drift.stats.label_shift import (
    adapt_posteriors,
    estimate_label_shift,
    estimate_label_shift_em,
    residual_shift_test,
)
from equipoise.drift.stats.two_sample_tests import mmd_permutation_test

OLD, NEW = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
CENTRES = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 0], [2, 2, 0]])  # the last feature tells no class from another


def pictures(prior, count, seed, moved=0.0):
    """Features around one centre a class, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, count, p=prior)
    return CENTRES[labels] + rng.normal(0, 0.7, (count, 3)) + moved, labels


def scores(features):
    """Logits whose softmax is exactly right under the old prior."""
    return -((features[:, None] - CENTRES) ** 2).sum(2) / (2 * 0.7**2) + np.log(OLD)


def test_both_ways_recover_shares_of_a_known_size():
    features, _ = pictures(NEW, 6000, 1)
    logits = scores(features)
    table = confusion_matrix(*(lambda x, y: (scores(x), y))(*pictures(OLD, 20_000, 2)), 4)
    called = np.bincount(logits.argmax(1), minlength=4)
    solved = estimate_label_shift(table, OLD, called)
    np.testing.assert_allclose(estimate_label_shift_em(softmax(logits, 1), OLD) * OLD, NEW, atol=0.03)
    np.testing.assert_allclose(solved.weights * OLD, NEW, atol=0.03)
    assert solved.is_identifiable


def test_posteriors_without_doubt_are_counted():
    np.testing.assert_allclose(estimate_label_shift_em(np.eye(2)[[0, 1, 1, 1]], np.array([0.5, 0.5])), [0.5, 1.5])


def test_posteriors_that_tell_nothing_change_nothing():
    np.testing.assert_allclose(estimate_label_shift_em(np.tile(OLD, (50, 1)), OLD), np.ones(4))


def test_expectation_finds_the_most_likely_prior():
    posteriors = softmax(np.random.default_rng(0).normal(0, 2, (300, 2)), 1)
    old = np.array([0.3, 0.7])
    grid = np.linspace(0.001, 0.999, 999)
    likelihood = [np.log(posteriors @ (np.array([one, 1 - one]) / old)).sum() for one in grid]
    assert estimate_label_shift_em(posteriors, old)[0] * 0.3 == pytest.approx(grid[np.argmax(likelihood)], abs=2e-3)


def test_order_of_the_window_is_nothing_to_its_shares():
    posteriors = softmax(scores(pictures(NEW, 200, 0)[0]), 1)
    np.testing.assert_allclose(
        estimate_label_shift_em(posteriors, OLD), estimate_label_shift_em(posteriors[::-1], OLD), rtol=1e-6
    )


def test_a_confusion_is_undone_by_hand():
    table = np.array([[0.9, 0.2], [0.1, 0.8]])
    solved = estimate_label_shift(table, np.array([0.5, 0.5]), table @ [0.25, 0.75])
    np.testing.assert_allclose(solved.weights, [0.5, 1.5])
    assert solved.min_singular_value == pytest.approx(np.linalg.svd(table)[1][-1]) and solved.is_identifiable


def test_weights_are_never_below_0_and_keep_the_prior_whole():
    table = np.array([[0.9, 0.2], [0.1, 0.8]])
    np.testing.assert_allclose(estimate_label_shift(table, np.array([0.5, 0.5]), np.array([0, 10])).weights, [0, 2])


def test_classes_that_are_called_alike_are_not_told_apart_and_not_trusted():
    table = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    solved = estimate_label_shift(table, np.array([0.4, 0.4, 0.2]), np.array([0.2, 0.2, 0.6]))
    assert not solved.is_identifiable and solved.min_singular_value == pytest.approx(0, abs=1e-12)
    assert solved.weights[0] == pytest.approx(solved.weights[1])
    np.testing.assert_allclose(solved.weights, [0.5, 0.5, 3], atol=0.05)


def test_adapted_posteriors_are_those_of_bayes():
    logits = np.log([[0.5, 0.5], [0.8, 0.2]])
    np.testing.assert_allclose(
        adapt_posteriors(logits, 1.0, np.array([1.0, 3.0])), [[0.25, 0.75], [0.8 / 1.4, 0.6 / 1.4]]
    )
    np.testing.assert_allclose(adapt_posteriors(logits * 2, 2.0, np.ones(2)), np.exp(logits))
    np.testing.assert_allclose(adapt_posteriors(np.array([[900.0, 0.0]]), 1.0, np.array([0.0, 1.0])), [[0, 1]])


def test_adapted_posteriors_call_more_of_a_shifted_window_right():
    features, labels = pictures(NEW, 5000, 3)
    logits = scores(features)
    weights = estimate_label_shift_em(softmax(logits, 1), OLD)
    right = (adapt_posteriors(logits, 1.0, weights).argmax(1) == labels).mean()
    assert right > (logits.argmax(1) == labels).mean() + 0.01


def verdicts(prior, moved):
    """p before and after weighting, of 40 windows."""
    ps = []
    for seed in range(40):
        reference, labels = pictures(OLD, 1200, 1000 + seed)
        window, _ = pictures(prior, 300, seed, moved)
        weights = estimate_label_shift_em(softmax(scores(window), 1), OLD)
        after = residual_shift_test(reference, labels, weights, window, 99, seed)
        ps.append((mmd_permutation_test(reference, window, 99, seed).p_value, after.p_value))
    return (np.array(ps) <= 0.05).mean(0)


def test_label_shift_is_explained_by_shares_of_classes():
    before, after = verdicts(NEW, 0.0)
    assert before == 1 and after <= 0.1


@pytest.mark.parametrize("prior", [OLD, NEW])
def test_covariate_shift_is_not_explained_with_label_shift_or_without(prior):
    assert verdicts(prior, 0.6)[1] > 0.9


def test_a_reference_thinned_to_one_class_is_that_class():
    ps = []
    for seed in range(60):
        features, labels = pictures(OLD, 1000, 1000 + seed)
        window, _ = pictures(np.eye(4)[3], 100, seed)
        ps.append(residual_shift_test(features, labels, np.eye(4)[3] * 10, window, 99, seed).p_value)
    assert np.mean(np.array(ps) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert residual_shift_test(features, labels, np.ones(4), window, 99).p_value == 0.01


def test_effective_examples_are_all_with_equal_weights_and_one_with_a_single():
    assert ImportanceWeights(np.full(10, 3.0)).effective_sample_size == pytest.approx(10)
    assert (
        ImportanceWeights(np.eye(10)[0]).effective_sample_size == 1
        and ImportanceWeights(np.eye(10)[0]).is_outside_reference
    )
    assert not ImportanceWeights(np.repeat([1.0, 0.0], [2, 8])).is_outside_reference


@pytest.mark.parametrize("columns", [2, 64])
def test_a_clean_window_leaves_every_example_its_weight(columns):
    rng = np.random.default_rng(0)
    found = estimate_density_ratio(rng.normal(0, 1, (1000, columns)), rng.normal(0, 1, (200, columns)))
    assert found.effective_sample_size > 900 and not found.is_outside_reference
    assert found.weights.mean() == pytest.approx(1, abs=0.1)


def test_weights_are_the_ratio_of_two_known_densities():
    rng = np.random.default_rng(0)
    reference, window = rng.normal(0, 1, (4000, 1)), rng.normal(0.7, 1, (2000, 1))
    found, ratio = estimate_density_ratio(reference, window), np.exp(0.7 * reference[:, 0] - 0.7**2 / 2)
    np.testing.assert_allclose(np.log(found.weights), np.log(ratio), atol=0.35)
    assert (
        found.effective_sample_size == pytest.approx(4000 * np.exp(-(0.7**2)), rel=0.15)
        and not found.is_outside_reference
    )
    assert np.average(reference[:, 0], weights=found.weights) == pytest.approx(0.7, abs=0.1)


def test_a_window_elsewhere_has_moved():
    rng = np.random.default_rng(0)
    assert estimate_density_ratio(rng.normal(0, 1, (500, 4)), rng.normal(4, 1, (200, 4))).is_outside_reference


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: estimate_label_shift_em(np.zeros((0, 4)), OLD), "rows of 4 classes"),
        (lambda: estimate_label_shift_em(np.full((3, 2), 0.5), OLD), "rows of 4 classes"),
        (lambda: estimate_label_shift_em(np.full((3, 4), np.nan), OLD), "sum to 1"),
        (lambda: estimate_label_shift_em(np.ones((3, 4)), OLD), "sum to 1"),
        (lambda: estimate_label_shift_em(np.eye(2), np.array([1.0, 0.0])), "share above 0"),
        (lambda: estimate_label_shift(np.eye(3), OLD, OLD), "both for 4 classes"),
        (lambda: estimate_label_shift(np.ones((4, 4)), OLD, OLD), "do not sum to 1"),
        (lambda: estimate_label_shift(np.eye(4), OLD, np.zeros(4)), "not all 0"),
        (lambda: adapt_posteriors(np.zeros((2, 3)), 1.0, np.ones(4)), "a logit for each"),
        (lambda: adapt_posteriors(np.full((2, 3), np.inf), 1.0, np.ones(3)), "finite rows"),
        (lambda: adapt_posteriors(np.zeros((2, 3)), 0.0, np.ones(3)), "cannot be used"),
        (lambda: adapt_posteriors(np.zeros((2, 3)), 1.0, np.zeros(3)), "cannot be used"),
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
def test_what_cannot_be_used_is_refused_in_a_sentence(asked, said):
    with pytest.raises(ValueError, match=said):
        asked()
