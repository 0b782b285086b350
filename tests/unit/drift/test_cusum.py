import numpy as np
import pytest

from equipoise.drift.charts.cell_statistics import ClassStatistics
from equipoise.drift.charts.class_runs import ClassRunEstimator
from equipoise.drift.charts.cusum import (
    StepSums,
    build_cusum_parameters,
    initial_cusum_state,
)
from equipoise.drift.features.image_schema import IMAGE_SCHEMA

SHIFT_SIZES = (0.75, 1.5, 3.0)  # that score charts look for, in standard deviations
SLACK_STANDARD_ERRORS, CHART_MEMORY_IMAGES = 2.0, 50.0
FEATURE_MEMORY_IMAGES = (32.0, 128.0, 512.0)
GONE_FACTOR, MORE_FACTOR = 0.1, 3.0  # on the share of a class that is gone, on the odds of a more frequent one

REFERENCE_COUNTS = np.array([200.0, 100, 60, 40])  # reference images of each class
STATISTIC_COUNT = 3
FOURIER_COUNT = 16
CLASS_SHARES = (REFERENCE_COUNTS + 0.5) / (REFERENCE_COUNTS.sum() + 2)


def build_class_statistics(trace=0.8):
    """Build the statistics of four classes, with scores of mean 0 and standard deviation 1 and features around 0."""
    zeros = np.zeros((4, STATISTIC_COUNT))
    return ClassStatistics(REFERENCE_COUNTS, zeros, zeros + 1, np.zeros((4, FOURIER_COUNT)), np.full(4, trace))


def draw_steps(rng, count, size=16, shift=0.0, shares=CLASS_SHARES):
    """Yield the sums of consecutive steps of one stream."""
    for _ in range(count):
        scores = rng.normal(shift, 1, (size, STATISTIC_COUNT)).sum(0)
        rest = rng.normal(0, (0.8 / FOURIER_COUNT) ** 0.5, (size, FOURIER_COUNT)).sum(0)
        yield StepSums(rng.multinomial(size, shares / shares.sum())[None].astype(float), scores[None], rest[None])


def compute_allowance(shift, run_length):
    """Return what a score chart subtracts per image: half the shift, plus the sampling error of the reference mean."""
    alone = run_length / (run_length + CHART_MEMORY_IMAGES / shift**2)
    together, single = 1 / REFERENCE_COUNTS.sum(), np.mean(1 / REFERENCE_COUNTS)
    return shift * (shift / 2 + SLACK_STANDARD_ERRORS * (together + (single - together) * alone) ** 0.5)


@pytest.mark.parametrize("shift", [0.0, 1.0, -1.0])
def test_score_charts_match_page_sums_in_a_plain_loop(shift):
    state = initial_cusum_state(build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT)
    expected = np.zeros((2, len(SHIFT_SIZES), STATISTIC_COUNT))
    for step in draw_steps(np.random.default_rng(1), 40, shift=shift):
        state.update(step)
        run_length = float(state.runs.mean_run_length()[0])
        for side, sign in enumerate((1, -1)):
            for index, shift_size in enumerate(SHIFT_SIZES):
                for statistic in range(STATISTIC_COUNT):
                    rise = sign * shift_size * step.scores[0, statistic] - 16 * compute_allowance(
                        shift_size, run_length
                    )
                    expected[side, index, statistic] = max(0, expected[side, index, statistic] + rise)
    np.testing.assert_allclose(state.scores[0], expected, atol=1e-9)
    assert (expected[0, 0] > 50).all() == (shift > 0) and (expected[1, 0] > 50).all() == (shift < 0)
    np.testing.assert_allclose(state.values()[0, : expected.size], expected.ravel())


@pytest.mark.parametrize("changed_class", [0, 3])
@pytest.mark.parametrize("factor", [0.0, 1.0, 4.0])
def test_class_charts_match_likelihood_ratios_in_a_plain_loop(changed_class, factor):
    shares = CLASS_SHARES.copy()
    shares[changed_class] *= factor
    state, expected = (
        initial_cusum_state(build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT),
        np.zeros((2, 4)),
    )
    for step in draw_steps(np.random.default_rng(2), 40, shares=shares):
        state.update(step)
        variance_factor = float(state.runs.variance_factor()[0])
        for label, share in enumerate(CLASS_SHARES):
            odds = MORE_FACTOR * share / (1 - share)
            for side, changed_share in enumerate((GONE_FACTOR * share, odds / (1 + odds))):
                count = step.counts[0, label]
                rise = count * np.log(changed_share / share) + (16 - count) * np.log((1 - changed_share) / (1 - share))
                expected[side, label] = max(0, expected[side, label] + rise / variance_factor)
    np.testing.assert_allclose(state.classes[0], expected, atol=1e-9)
    np.testing.assert_allclose(state.values()[0, state.scores.size :][:2], expected.max(1))
    if factor != 1:
        assert expected[int(factor > 1)].argmax() == changed_class and expected.max() > 1


@pytest.mark.parametrize("missing_class", [None, 0])
def test_class_charts_compare_with_the_shares_within_each_condition(missing_class):
    by_condition = np.array([[100.0, 200, 50, 50], [100, 20, 180, 100]])
    zeros = np.zeros((8, STATISTIC_COUNT))
    statistics = ClassStatistics(by_condition.ravel(), zeros, zeros + 1, np.zeros((8, FOURIER_COUNT)), np.ones(8))
    rules = build_cusum_parameters(statistics, condition_count=2)
    for condition in (0, 1):  # a stream may show either alone
        shares, state = by_condition[condition].copy(), initial_cusum_state(rules, STATISTIC_COUNT, FOURIER_COUNT)
        if missing_class is not None:
            shares[missing_class] = 0
        highest = 0
        for step in draw_steps(np.random.default_rng(6), 100, shares=shares):
            counts = np.zeros((1, 2, 4))
            counts[:, condition] = step.counts
            state.update(StepSums(counts.reshape(1, 8), step.scores, step.rest))
            highest = max(highest, state.classes.max())
        assert (highest > 10) == (missing_class is not None)
        if missing_class is not None:
            assert state.classes[0, 0].argmax() == missing_class


def test_feature_charts_match_decaying_sums_after_a_past_without_drift():
    state, steps = (
        initial_cusum_state(build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT),
        list(draw_steps(np.random.default_rng(3), 20)),
    )
    for step in steps:
        state.update(step)
    for index, memory in enumerate(FEATURE_MEMORY_IMAGES):
        decay = np.exp(-16 / memory)
        mean_weight = memory * (1 - decay) / 16
        weights = mean_weight * decay ** np.arange(len(steps))[::-1]
        rest = sum(weight * step.rest[0] for weight, step in zip(weights, steps, strict=True))
        counts = np.array([step.counts[0] for step in steps])
        squares, class_weights = weights**2 @ counts, weights @ counts
        squares = squares + decay ** (2 * len(steps)) * memory / 2 * state.rules.class_shares
        expected = (rest**2).sum() / (
            0.8 * (squares + SLACK_STANDARD_ERRORS * class_weights**2 / REFERENCE_COUNTS).sum()
        )
        assert state.values()[0, -len(FEATURE_MEMORY_IMAGES) + index] == pytest.approx(expected, rel=1e-6)


def test_score_chart_rises_by_what_exceeds_its_allowance():
    state = initial_cusum_state(build_cusum_parameters(build_class_statistics()), 1, FOURIER_COUNT)
    counts = REFERENCE_COUNTS[None] / REFERENCE_COUNTS.sum() * 20
    state.update(StepSums(counts, np.array([[30.0]]), np.zeros((1, FOURIER_COUNT))))
    allowances = [compute_allowance(size, float(state.runs.mean_run_length()[0])) for size in SHIFT_SIZES]
    expected = [max(0, size * 30 - 20 * allowance) for size, allowance in zip(SHIFT_SIZES, allowances, strict=True)]
    np.testing.assert_allclose(state.scores[0, 0, :, 0], expected)
    assert not state.scores[0, 1].any()


def test_parallel_streams_are_charted_like_single_ones():
    parallel_state = initial_cusum_state(
        build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT, 3
    )
    single_states = [
        initial_cusum_state(build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT)
        for _ in range(3)
    ]
    streams = [list(draw_steps(np.random.default_rng(seed), 12, 16 * (seed + 1), shift=0.4)) for seed in range(3)]
    for steps in zip(*streams, strict=True):
        for state, step in zip(single_states, steps, strict=True):
            state.update(step)
        fields = ("counts", "scores", "rest")
        parallel_state.update(StepSums(*(np.concatenate([getattr(step, name) for step in steps]) for name in fields)))
    np.testing.assert_allclose(
        parallel_state.values(), np.concatenate([state.values() for state in single_states]), rtol=1e-12
    )


def test_reset_streams_are_charted_like_new_ones_and_others_go_on():
    parameters = build_cusum_parameters(build_class_statistics())
    state = initial_cusum_state(parameters, STATISTIC_COUNT, FOURIER_COUNT, 2)
    new, other = (initial_cusum_state(parameters, STATISTIC_COUNT, FOURIER_COUNT) for _ in range(2))
    fields = ("counts", "scores", "rest")

    def update(*states):
        for step in [*draw_steps(np.random.default_rng(len(states)), 20, shift=0.6)]:
            state.update(StepSums(*(np.concatenate([getattr(step, name)] * 2) for name in fields)))
            for single in states:
                single.update(step)

    update(other)
    state.reset(np.array([0]))
    update(new, other)
    np.testing.assert_allclose(state.values(), np.concatenate([new.values(), other.values()]), rtol=1e-12)


def test_limit_caps_high_charts_and_leaves_lower_ones():
    state = initial_cusum_state(build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT)
    state.scores[:] = np.arange(state.scores.size).reshape(state.scores.shape)
    state.classes[:] = [[[1, 2, 3, 4], [5, 6, 7, 8]]]
    before, limits = state.values()[0], np.full(state.values().shape[1], 6.5)
    limits[2], limits[state.scores.size] = -1, 2.5
    state.limit(limits)
    expected = np.minimum(np.arange(state.scores.size), 6.5)
    expected[2] = 0  # a negative limit counts as 0
    np.testing.assert_array_equal(state.scores.ravel(), expected)
    np.testing.assert_array_equal(state.classes[0], [[1, 2, 2.5, 2.5], [5, 6, 6.5, 6.5]])
    np.testing.assert_array_equal(state.values()[0, -3:], before[-3:])


@pytest.mark.parametrize("shares", [CLASS_SHARES, np.array([0, 0, 0, 1.0]), np.array([0.25] * 4)])
def test_feature_charts_stay_near_1_without_drift_whatever_the_class_shares(shares):
    ratios_by_error = {0.0: [], 1.0: [], SLACK_STANDARD_ERRORS: []}  # by error of the reference means
    for error, ratios in ratios_by_error.items():
        rng = np.random.default_rng(0)
        for _ in range(20):
            centres = (
                rng.normal(0, (error * 0.8 / FOURIER_COUNT) ** 0.5, (4, FOURIER_COUNT))
                / REFERENCE_COUNTS[:, None] ** 0.5
            )
            state = initial_cusum_state(
                build_cusum_parameters(build_class_statistics()), STATISTIC_COUNT, FOURIER_COUNT
            )
            for step in draw_steps(rng, 60, shares=shares):
                state.update(StepSums(step.counts, step.scores, step.rest + step.counts @ centres))
            ratios.append(state.values()[0, -len(FEATURE_MEMORY_IMAGES) :])
    exact, typical, largest_allowed = (np.mean(ratios, 0) for ratios in ratios_by_error.values())
    np.testing.assert_allclose(largest_allowed, 1, atol=0.2)  # charts allow the reference means such an error
    assert (exact < typical).all() and (typical < 1.05).all() and (typical > 1 / SLACK_STANDARD_ERRORS - 0.05).all()


def draw_class_runs(rng, run_length, count, streams=1):
    """Draw (streams, count) classes, in runs of `run_length` images on average."""
    classes, starts = rng.choice(4, (streams, count), p=CLASS_SHARES), rng.random((streams, count)) < 1 / run_length
    starts[:, 0] = True
    return np.take_along_axis(classes, np.maximum.accumulate(np.where(starts, np.arange(count), 0), 1), 1)


def estimate_class_runs(classes, step_size):
    """Return the estimator after streams of classes (streams, images), fed in steps."""
    runs = ClassRunEstimator.initial(len(classes), CLASS_SHARES)
    for first in range(0, classes.shape[1], step_size):
        runs.update((classes[:, first : first + step_size, None] == np.arange(4)).sum(1).astype(float))
    return runs


@pytest.mark.parametrize("step_size", [16, 64])
@pytest.mark.parametrize("run_length", [1, 5, 30])
def test_run_length_is_recovered(run_length, step_size):
    runs = estimate_class_runs(draw_class_runs(np.random.default_rng(4), run_length, 128 * step_size, 40), step_size)
    assert run_length / 1.5 < np.median(runs.mean_run_length()) < run_length * 1.5
    np.testing.assert_allclose(runs.variance_factor(), 2 * runs.mean_run_length() - 1)


def test_run_length_does_not_depend_on_order_within_a_step():
    rng = np.random.default_rng(5)
    classes = draw_class_runs(rng, 10, 1600)
    permuted = rng.permuted(classes.reshape(100, 16), axis=1).reshape(1, -1)
    assert (permuted != classes).any()
    for name in ("share", "lately", "alike", "pairs", "size", "long"):
        np.testing.assert_array_equal(
            getattr(estimate_class_runs(permuted, 16), name), getattr(estimate_class_runs(classes, 16), name)
        )


def test_initial_charts_are_zero_and_have_the_documented_shape():
    state = initial_cusum_state(build_cusum_parameters(build_class_statistics()), len(IMAGE_SCHEMA), FOURIER_COUNT, 2)
    assert state.values().shape == (2, 2 * len(SHIFT_SIZES) * len(IMAGE_SCHEMA) + 2 + len(FEATURE_MEMORY_IMAGES))
    assert not state.values().any()
