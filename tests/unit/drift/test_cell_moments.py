"""Statistics of cells against plain loops over a few examples that are set by hand."""

import numpy as np
import pytest

from equipoise.drift.charts.cell_statistics import (
    ClassStatistics,
    ImageFeatures,
    fit_cell_statistics,
    shrunk_class_means,
    squared_cell_distances,
)
from equipoise.drift.charts.class_runs import ClassRunEstimator, expected_pair_shares, fit_run_length
from equipoise.drift.charts.conditions import ConditionRule
from equipoise.drift.charts.sums import SumsLayout
from equipoise.drift.profiling.reference_examples import (
    concat_conditions,
    fit_label_statistics,
    measure_condition_accuracy,
)
from equipoise.drift.reference.simulated_streams import LabelledFeatures

CLASSES = 3


def draw_examples(count=60, seed=0, conditions=1):
    """Draw examples with two statistics and four Fourier features of length one."""
    rng = np.random.default_rng(seed)
    waves = rng.normal(size=(count, 4))
    waves /= np.linalg.norm(waves, axis=1, keepdims=True)
    features = ImageFeatures(rng.normal(3, 2, (count, 2)), rng.integers(0, CLASSES, count), waves)
    if conditions == 1:
        return features
    return ImageFeatures(
        features.statistics, features.predicted_classes, waves, rng.integers(0, conditions, count), CLASSES
    )


def shrink(values, is_member):
    """Return the mean of the members, with five images that have the mean of all."""
    return (values[is_member].sum(0) + 5 * values.mean(0)) / (is_member.sum() + 5)


def test_means_and_deviations_of_classes_are_shrunk_towards_those_of_all():
    examples = draw_examples()
    statistics = fit_cell_statistics(examples, CLASSES, 1)
    for label in range(CLASSES):
        own = examples.predicted_classes == label
        assert statistics.counts[label] == own.sum()
        np.testing.assert_allclose(statistics.mean[label, :2], shrink(examples.statistics, own))
        np.testing.assert_allclose(statistics.waves[label], shrink(examples.fourier_features, own))
    deviations = examples.statistics - statistics.mean[examples.predicted_classes, :2]
    residuals = examples.fourier_features - statistics.waves[examples.predicted_classes]
    for label in range(CLASSES):
        own = examples.predicted_classes == label
        np.testing.assert_allclose(statistics.scale[label, :2] ** 2, shrink(deviations**2, own))
        np.testing.assert_allclose(statistics.trace[label], shrink((residuals**2).sum(1), own))
    distances = ((examples.fourier_features - statistics.waves[examples.predicted_classes]) ** 2).sum(1)
    np.testing.assert_allclose(squared_cell_distances(examples, statistics.waves), distances)
    np.testing.assert_allclose(statistics.mean[0, 2], shrink(distances, examples.predicted_classes == 0))


def test_constant_statistic_has_a_smallest_deviation():
    examples = draw_examples()
    constant = ImageFeatures(np.full((60, 2), 7.0), examples.predicted_classes, examples.fourier_features)
    statistics = fit_cell_statistics(constant, CLASSES, 1)
    np.testing.assert_allclose(statistics.mean[:, :2], 7)
    np.testing.assert_allclose(statistics.scale[:, :2], 0.01)


def test_condition_without_a_class_moves_it_as_it_moves_the_others():
    examples = draw_examples(200, conditions=2)
    examples.predicted_classes[(examples.conditions == 1) & (examples.predicted_classes == 2)] = 1
    examples.statistics[examples.conditions == 1] += 10
    statistics = fit_cell_statistics(examples, CLASSES, 2)
    first, second = statistics.mean[:CLASSES, :2], statistics.mean[CLASSES:, :2]
    assert statistics.counts[CLASSES + 2] == 0
    of_second = examples.select_condition(1)
    moved = of_second.statistics - first[of_second.predicted_classes]
    np.testing.assert_allclose(second[2], first[2] + moved.mean(0))
    np.testing.assert_allclose(second[0], first[0] + shrink(moved, of_second.predicted_classes == 0))


def build_statistics(**changes):
    parts = {
        "counts": np.array([10.0, 20.0]),
        "mean": np.array([[1.0, 0.5, 0.1], [3.0, 0.5, 0.2]]),
        "scale": np.array([[2.0, 0.25, 0.5], [0.5, 0.25, 0.5]]),
        "waves": np.array([[0.5, 0.0], [0.0, 0.5]]),
        "trace": np.ones(2),
    }
    return ClassStatistics(**parts | changes)


def test_scores_are_clipped_differences_and_far_features_are_outliers():
    examples = ImageFeatures(
        np.array([[5.0], [3.25], [100.0]]), np.array([0, 1, 1]), np.array([[1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
    )
    statistics = build_statistics()
    distances = [0.25, 2.25, 0.25]  # the second: 7 standard deviations above the usual 0.5
    np.testing.assert_allclose(
        statistics.shifts(examples), [[4, distances[0] - 0.5, -0.1], [0.25, 1.75, 0.8], [97, -0.25, -0.2]]
    )
    np.testing.assert_allclose(statistics.scores(examples), [[2, -1, -0.2], [0.5, 4, 1.6], [4, -1, -0.4]])


@pytest.mark.parametrize(("distance", "is_outlier"), [(1.249, 0), (1.251, 1)])
def test_feature_is_an_outlier_above_three_standard_deviations(distance, is_outlier):
    part = 1.25 - distance  # along the mean: 1 - 2 * 0.5 * part + 0.25 is the squared distance
    examples = ImageFeatures(np.zeros((1, 1)), np.array([0]), np.array([[part, np.sqrt(1 - part**2)]]))
    assert build_statistics().distance_statistics(examples)[0].tolist() == pytest.approx([distance, is_outlier])


def test_class_means_weigh_the_mean_of_all_by_five_images():
    membership, values = np.array([[1.0, 1, 0, 0], [0, 0, 0, 0]]), np.array([[2.0], [4], [6], [8]])
    np.testing.assert_allclose(shrunk_class_means(membership, values), [[(6 + 25) / 7], [5]])


def test_examples_are_selected_with_their_conditions():
    examples = draw_examples(10, conditions=2)
    np.testing.assert_array_equal(examples.cells, examples.conditions * CLASSES + examples.predicted_classes)
    part = examples.select([3, 1])
    assert part.cells.tolist() == examples.cells[[3, 1]].tolist() and len(part) == 2
    second = examples.select_condition(1)
    assert second.conditions is None and len(second) == (examples.conditions == 1).sum()
    alone = draw_examples(10)
    assert alone.select_condition(0) is alone and alone.cells is alone.predicted_classes


def test_image_is_assigned_to_the_condition_under_which_it_is_most_likely():
    rng = np.random.default_rng(2)
    mean, scale = rng.normal(0, 1, (3, CLASSES, 4)), rng.uniform(0.5, 2, (3, CLASSES, 4))
    rule = ConditionRule(mean, scale, np.array([1.0, 0.5, 0.0, 2.0]))
    values, classes = rng.normal(0, 2, (300, 6)), rng.integers(0, CLASSES, 300)
    expected = []
    for row, label in zip(values, classes, strict=True):
        losses = [
            sum(
                weight
                * (min(((row[k] - mean[c, label, k]) / scale[c, label, k]) ** 2, 16) / 2 + np.log(scale[c, label, k]))
                for k, weight in enumerate(rule.weights)
            )
            for c in range(3)
        ]
        expected.append(int(np.argmin(losses)))
    assert rule.assign(values, classes).tolist() == expected and len(set(expected)) == 3


def test_cells_are_counted_by_class_and_by_condition():
    layout = SumsLayout(class_count=3, statistic_count=1, fourier_count=0, condition_count=2)
    rows = np.zeros((2, layout.row_length), np.int64)
    rows[:, layout.slices["cells"]] = [[1, 2, 3, 10, 20, 30], [0, 0, 1, 0, 5, 0]]
    assert layout.read_class_counts(rows).tolist() == [[11, 22, 33], [0, 5, 1]]
    assert layout.read_condition_counts(rows).tolist() == [[6, 60], [1, 5]]
    assert layout.read_class_counts(rows[:0]).shape == (0, 3) and layout.read_condition_counts(rows[0]).tolist() == [
        6,
        60,
    ]


@pytest.mark.parametrize("length", [1.0, 3.0, 40.0])
@pytest.mark.parametrize("size", [2, 16])
def test_pairs_in_one_run_follow_their_definition(length, size):
    goes_on, places = 1 - 1 / length, np.arange(size)
    apart = places[:, None] - places
    within = (goes_on ** np.abs(apart[apart != 0])).mean()
    lags = [(goes_on ** (lag * size + apart)).mean() for lag in range(1, 400)]
    earlier = sum(share / 8 * (1 - 1 / 8) ** index for index, share in enumerate(lags))
    shares = np.array(expected_pair_shares(np.array(length), np.array(float(size))))
    assert shares == pytest.approx([within, lags[0], earlier], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("agreement", [1.0, 0.8])
def test_run_length_is_found_from_its_pairs_though_a_model_errs(agreement):
    lengths = np.geomspace(1, 4096, 49)[[0, 8, 20, 30]]
    sizes = np.full(4, 16.0)
    pairs = agreement * np.stack(expected_pair_shares(lengths, sizes), 1)
    assert fit_run_length(pairs, sizes)[1:] == pytest.approx(lengths[1:])
    assert agreement < 1 or fit_run_length(pairs, sizes)[0] == 1
    several = np.array([8.0, 16.0, 16.0, 32.0])  # each stream is fitted as if it were alone
    pairs = np.stack(expected_pair_shares(lengths, several), 1)
    alone = [fit_run_length(pairs[[row]], several[[row]])[0] for row in range(4)]
    assert fit_run_length(pairs, several).tolist() == alone == pytest.approx(lengths)


def test_estimator_of_runs_begins_without_them_and_one_class_has_none():
    shares = np.array([0.5, 0.3, 0.2])
    runs = ClassRunEstimator.initial(2, shares)
    assert runs.mean_run_length().tolist() == [1, 1] and runs.variance_factor().tolist() == [1, 1]
    np.testing.assert_allclose(runs.share, 256 * np.tile(shares, (2, 1)))
    np.testing.assert_allclose(runs.pairs, 0.5 * (1 - (shares**2).sum()))
    alone = ClassRunEstimator.initial(1, np.ones(1))
    for _ in range(5):
        alone.update(np.full((1, 1), 16.0))
    assert alone.mean_run_length().tolist() == [1]


def test_statistics_by_label_follow_plain_loops():
    examples, rng = draw_examples(80), np.random.default_rng(4)
    labels = np.where(rng.random(80) < 0.8, examples.predicted_classes, rng.integers(0, 2, 80))
    labels[labels == 2] = 0  # a class without examples
    statistics = fit_cell_statistics(examples, CLASSES, 1)
    found = fit_label_statistics(LabelledFeatures(examples, labels), statistics, CLASSES)
    scores, rest = statistics.scores(examples), examples.fourier_features - statistics.waves[examples.predicted_classes]
    for label in (0, 1):
        own = labels == label
        assert found.prior[label] == pytest.approx(own.mean())
        shares = np.bincount(examples.predicted_classes[own], minlength=CLASSES) / own.sum()
        np.testing.assert_allclose(found.confusion[:, label], shares)
        np.testing.assert_allclose(found.scores[label], scores[own].mean(0))
        np.testing.assert_allclose(found.rest[label], rest[own].mean(0), rtol=1e-5, atol=1e-7)
    assert found.prior[2] == 0 and found.confusion[:, 2].tolist() == [0, 0, 1] and not found.scores[2].any()


def test_parts_are_concatenated_with_their_conditions():
    parts = [draw_examples(count, seed) for seed, count in enumerate((3, 2, 4))]
    assert concat_conditions(parts[:1]) is parts[0]
    assert concat_conditions(parts).conditions.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert concat_conditions(parts, [0, 0, 1]).conditions.tolist() == [0] * 5 + [1] * 4
    merged = concat_conditions(parts, [0, 0, 0])
    assert merged.conditions is None and len(merged) == 9
    np.testing.assert_array_equal(merged.statistics[3:5], parts[1].statistics)


def test_right_answers_are_counted_by_condition():
    examples = draw_examples(6)
    labels = examples.predicted_classes.copy()
    labels[[1, 4]] = (labels[[1, 4]] + 1) % CLASSES
    assert measure_condition_accuracy(LabelledFeatures(examples, labels), 1) is None
    accuracy = measure_condition_accuracy(LabelledFeatures(examples, labels, np.array([0, 0, 1, 1, 1, 0])), 3)
    assert (accuracy.labelled.tolist(), accuracy.correct.tolist()) == ([3, 3, 0], [2, 2, 0])
