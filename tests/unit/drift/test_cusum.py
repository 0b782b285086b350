import numpy as np
import pytest

from equipoise.drift.charts.baseline import CHARTED_FEATURES, ClassStatistics
from equipoise.drift.charts.class_runs import ClassRunEstimator
from equipoise.drift.charts.cusum import (
    CHART_MEMORY_IMAGES,
    FEATURE_MEMORY_IMAGES,
    GONE_FACTOR,
    MORE_FACTOR,
    SHIFT_SIZES,
    SLACK_STANDARD_ERRORS,
    StepSums,
    build_cusum_parameters,
    initial_cusum_state,
)

EXAMPLES = np.array([200.0, 100, 60, 40])
FIGURE_COUNT = 3
WAVES = 16
SHARES = (EXAMPLES + 0.5) / (EXAMPLES.sum() + 2)


def usual(trace=0.8):
    """Of four classes, where features scatter about 0."""
    nothing = np.zeros((4, FIGURE_COUNT))
    return ClassStatistics(EXAMPLES, nothing, nothing + 1, np.zeros((4, WAVES)), np.full(4, trace))


def steps(rng, count, size=16, shift=0.0, shares=SHARES):
    """Steps of one stream."""
    for _ in range(count):
        scores = rng.normal(shift, 1, (size, FIGURE_COUNT)).sum(0)
        rest = rng.normal(0, (0.8 / WAVES) ** 0.5, (size, WAVES)).sum(0)
        yield StepSums(rng.multinomial(size, shares / shares.sum())[None].astype(float), scores[None], rest[None])


def drift(shift, run):
    """What a chart of scores loses a picture, as it is written: half the shift, and what the mean may be off."""
    alone = run / (run + CHART_MEMORY_IMAGES / shift**2)
    together, single = 1 / EXAMPLES.sum(), np.mean(1 / EXAMPLES)
    return shift * (shift / 2 + SLACK_STANDARD_ERRORS * (together + (single - together) * alone) ** 0.5)


@pytest.mark.parametrize("shift", [0.0, 1.0, -1.0])
def test_charts_of_scores_are_pages_sums_in_a_plain_loop(shift):
    made = initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES)
    plain = np.zeros((2, len(SHIFT_SIZES), FIGURE_COUNT))
    for step in steps(np.random.default_rng(1), 40, shift=shift):
        made.update(step)
        run = float(made.runs.mean_run_length()[0])
        for side, sign in enumerate((1, -1)):
            for place, size in enumerate(SHIFT_SIZES):
                for figure in range(FIGURE_COUNT):
                    rise = sign * size * step.scores[0, figure] - 16 * drift(size, run)
                    plain[side, place, figure] = max(0, plain[side, place, figure] + rise)
    np.testing.assert_allclose(made.scores[0], plain, atol=1e-9)
    assert (plain[0, 0] > 50).all() == (shift > 0) and (plain[1, 0] > 50).all() == (shift < 0)
    np.testing.assert_allclose(made.values()[0, : plain.size], plain.ravel())


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("times", [0.0, 1.0, 4.0])
def test_charts_of_classes_are_likelihood_ratios_in_a_plain_loop(place, times):
    shares = SHARES.copy()
    shares[place] *= times
    made, plain = initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES), np.zeros((2, 4))
    for step in steps(np.random.default_rng(2), 40, shares=shares):
        made.update(step)
        widening = float(made.runs.variance_factor()[0])
        for one, share in enumerate(SHARES):
            odds = MORE_FACTOR * share / (1 - share)
            for side, other in enumerate((GONE_FACTOR * share, odds / (1 + odds))):
                mine = step.counts[0, one]
                change = mine * np.log(other / share) + (16 - mine) * np.log((1 - other) / (1 - share))
                plain[side, one] = max(0, plain[side, one] + change / widening)
    np.testing.assert_allclose(made.classes[0], plain, atol=1e-9)
    np.testing.assert_allclose(made.values()[0, made.scores.size :][:2], plain.max(1))
    if times != 1:
        assert plain[int(times > 1)].argmax() == place and plain.max() > 1


def test_charts_of_features_are_decaying_sums_after_a_clean_past_in_a_plain_loop():
    made, held = (
        initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES),
        list(steps(np.random.default_rng(3), 20)),
    )
    for step in held:
        made.update(step)
    for place, memory in enumerate(FEATURE_MEMORY_IMAGES):
        kept = np.exp(-16 / memory)
        new = memory * (1 - kept) / 16
        weights = new * kept ** np.arange(len(held))[::-1]
        rest = sum(weight * step.rest[0] for weight, step in zip(weights, held, strict=True))
        counts = np.array([step.counts[0] for step in held])
        squares, weight = weights**2 @ counts, weights @ counts
        squares = squares + kept ** (2 * len(held)) * memory / 2 * made.rules.class_shares
        expected = (rest**2).sum() / (0.8 * (squares + SLACK_STANDARD_ERRORS * weight**2 / EXAMPLES).sum())
        assert made.values()[0, -len(FEATURE_MEMORY_IMAGES) + place] == pytest.approx(expected, rel=1e-6)


def test_one_picture_more_than_half_the_shift_above_what_is_usual_raises_a_chart_by_hand():
    made = initial_cusum_state(build_cusum_parameters(usual()), 1, WAVES)
    counts = EXAMPLES[None] / EXAMPLES.sum() * 20
    made.update(StepSums(counts, np.array([[30.0]]), np.zeros((1, WAVES))))
    lost = [drift(size, float(made.runs.mean_run_length()[0])) for size in SHIFT_SIZES]
    expected = [max(0, size * 30 - 20 * loss) for size, loss in zip(SHIFT_SIZES, lost, strict=True)]
    np.testing.assert_allclose(made.scores[0, 0, :, 0], expected)
    assert not made.scores[0, 1].any()


def test_streams_beside_each_other_are_charted_as_each_by_itself():
    several = initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES, 3)
    alone = [initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES) for _ in range(3)]
    streams = [list(steps(np.random.default_rng(seed), 12, 16 * (seed + 1), shift=0.4)) for seed in range(3)]
    for parts in zip(*streams, strict=True):
        for one, part in zip(alone, parts, strict=True):
            one.update(part)
        fields = ("counts", "scores", "rest")
        several.update(StepSums(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields)))
    np.testing.assert_allclose(several.values(), np.concatenate([one.values() for one in alone]), rtol=1e-12)


def test_no_sum_rises_above_its_limit_and_what_is_lower_stays():
    made = initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES)
    made.scores[:] = np.arange(made.scores.size).reshape(made.scores.shape)
    made.classes[:] = [[[1, 2, 3, 4], [5, 6, 7, 8]]]
    before, heights = made.values()[0], np.full(made.values().shape[1], 6.5)
    heights[2], heights[made.scores.size] = -1, 2.5
    made.limit(heights)
    expected = np.minimum(np.arange(made.scores.size), 6.5)
    expected[2] = 0  # a height below nothing is nothing
    np.testing.assert_array_equal(made.scores.ravel(), expected)
    np.testing.assert_array_equal(made.classes[0], [[1, 2, 2.5, 2.5], [5, 6, 6.5, 6.5]])
    np.testing.assert_array_equal(made.values()[0, -3:], before[-3:])


@pytest.mark.parametrize("shares", [SHARES, np.array([0, 0, 0, 1.0]), np.array([0.25] * 4)])
def test_the_ratio_of_features_is_about_1_without_drift_whatever_classes_come(shares):
    found = {0.0: [], 1.0: [], SLACK_STANDARD_ERRORS: []}
    for error, ratios in found.items():
        rng = np.random.default_rng(0)
        for _ in range(20):
            centres = rng.normal(0, (error * 0.8 / WAVES) ** 0.5, (4, WAVES)) / EXAMPLES[:, None] ** 0.5
            made = initial_cusum_state(build_cusum_parameters(usual()), FIGURE_COUNT, WAVES)
            for step in steps(rng, 60, shares=shares):
                made.update(StepSums(step.counts, step.scores, step.rest + step.counts @ centres))
            ratios.append(made.values()[0, -len(FEATURE_MEMORY_IMAGES) :])
    none, once, slack = (np.mean(ratios, 0) for ratios in found.values())
    np.testing.assert_allclose(slack, 1, atol=0.2)  # what charts allow the reference's means to be off
    assert (none < once).all() and (once < 1.05).all() and (once > 1 / SLACK_STANDARD_ERRORS - 0.05).all()


def stream(rng, length, count, streams=1):
    """(streams, count) classes in runs of so many on average."""
    drawn, begins = rng.choice(4, (streams, count), p=SHARES), rng.random((streams, count)) < 1 / length
    begins[:, 0] = True
    return np.take_along_axis(drawn, np.maximum.accumulate(np.where(begins, np.arange(count), 0), 1), 1)


def followed(classes, size):
    runs = ClassRunEstimator.initial(len(classes), SHARES)
    for first in range(0, classes.shape[1], size):
        runs.update((classes[:, first : first + size, None] == np.arange(4)).sum(1).astype(float))
    return runs


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("length", [1, 5, 30])
def test_the_length_of_runs_is_recovered(length, size):
    found = followed(stream(np.random.default_rng(4), length, 128 * size, 40), size)
    assert length / 1.5 < np.median(found.mean_run_length()) < length * 1.5
    np.testing.assert_allclose(found.variance_factor(), 2 * found.mean_run_length() - 1)


def test_the_length_of_runs_does_not_depend_on_order_within_a_step():
    rng = np.random.default_rng(5)
    classes = stream(rng, 10, 1600)
    mixed = rng.permuted(classes.reshape(100, 16), axis=1).reshape(1, -1)
    assert (mixed != classes).any()
    for name in ("share", "lately", "alike", "pairs", "size", "long"):
        np.testing.assert_array_equal(getattr(followed(mixed, 16), name), getattr(followed(classes, 16), name))


def test_charts_and_figures_have_the_sizes_that_they_say():
    made = initial_cusum_state(build_cusum_parameters(usual()), len(CHARTED_FEATURES), WAVES, 2)
    assert made.values().shape == (2, 2 * len(SHIFT_SIZES) * len(CHARTED_FEATURES) + 2 + len(FEATURE_MEMORY_IMAGES))
    assert not made.values().any()
