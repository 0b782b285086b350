"""Examples ratios in pairs of equal seed, and the critical interval, judged on simulated runs whose truth is known."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.exchange_choice.critical_interval import (
    excess_steps,
    find_best_interval,
    fit_critical_interval,
)
from equipoise.planning.exchange_choice.examples_ratio import RatioKey, fit_examples_ratio, fit_examples_ratios
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from tests.support.exchange_world import RUN_COLUMNS

WORKERS, BATCH = 4, 128
LOCAL = RatioKey("local:16", WORKERS, BATCH)


def build_runs(rows):
    return pd.DataFrame(rows, columns=RUN_COLUMNS)


def true_ratio(interval, critical, workers=WORKERS):
    return 1 + (interval - 1) * (1 - 1 / workers) / critical


def simulate_runs(rng, critical, noise, seeds, intervals=(16, 4, 64)):
    """Return exact runs at three batches, and runs at each interval; the first was chosen among three rates."""
    rows = [
        ("", 1, batch, 0.1, seed, 20_000 * (1 + batch / 100) * np.exp(noise * rng.standard_normal()), 1)
        for batch in (64, 128, 256)
        for seed in range(seeds)
    ]
    best = int(rng.integers(3))
    for interval in intervals:
        for lr_index in range(3):
            for seed in range(seeds if lr_index == best else 1):
                logs = np.log(45_600 * true_ratio(interval, critical)) + 0.3 * (lr_index - best) ** 2
                examples = np.exp(logs + noise * rng.standard_normal())
                rows.append((f"local:{interval}", WORKERS, BATCH, 0.05 * 2**lr_index, seed, examples, 1))
    return build_runs(rows)


def test_ratio_compares_runs_of_equal_seed_at_the_best_rate_of_each_side():
    rows = [("", 1, BATCH, 0.1, seed, 1000.0 * (1 + seed), 1) for seed in range(3)]
    rows += [("", 1, BATCH, 0.4, seed, 9000.0, 1) for seed in range(3)]
    rows += [("local:16", WORKERS, BATCH, 0.05, seed, 1500.0 * (1 + seed), 1) for seed in range(1, 3)]
    rows += [("local:16", WORKERS, BATCH, 0.1, seed, 8000.0, 1) for seed in range(1, 3)]
    ratio = fit_examples_ratio(build_runs(rows), LOCAL)
    assert (ratio.lr, ratio.exact_lr, ratio.pairs, ratio.reached) == (0.05, 0.1, 2, 2)
    assert ratio.value == pytest.approx(1.5)  # though seeds 1 and 2 need more than the mean of all seeds
    assert ratio.interval.low < 1.5 < ratio.interval.high


def test_one_pair_is_wider_than_three():
    rows = [(name, 1, BATCH, 0.1, seed, 1000.0, 1) for name in ("", "bf16") for seed in range(3)]
    three = fit_examples_ratio(build_runs(rows), RatioKey("bf16", 1, BATCH))
    single = fit_examples_ratio(build_runs([rows[0], rows[3]]), RatioKey("bf16", 1, BATCH))
    assert single.interval.high / single.interval.low > 1.4 > three.interval.high / three.interval.low > 1.1


def test_runs_that_miss_the_target_make_a_lower_bound():
    rows = [("", 1, BATCH, 0.1, seed, 1000.0, 1) for seed in range(3)]
    missed = [("topk:0.01", 1, BATCH, 0.1, seed, 3000.0, 0) for seed in range(3)]
    ratio = fit_examples_ratio(build_runs(rows + missed), RatioKey("topk:0.01", 1, BATCH))
    assert ratio.is_lower_bound and ratio.value == pytest.approx(3.0)
    single = [(*row[:5], 2000.0, 1) for row in missed[:2]] + missed[2:]
    ratio = fit_examples_ratio(build_runs(rows + single), RatioKey("topk:0.01", 1, BATCH))
    assert not ratio.is_lower_bound and ratio.value > 2.0


def test_runs_without_a_pair_have_no_ratio():
    exact = [("", 1, BATCH, 0.1, 0, 1000.0, 1)]
    other_seed = build_runs([*exact, ("local:16", WORKERS, BATCH, 0.1, 1, 1000.0, 1)])
    other_batch = build_runs([*exact, ("local:16", WORKERS, 2 * BATCH, 0.1, 0, 1000.0, 1)])
    assert fit_examples_ratios(other_seed) == fit_examples_ratios(other_batch) == []


@pytest.mark.parametrize("intervals", [(4, 16), (16, 17, 18)])
def test_critical_interval_is_not_told_by_few_or_close_intervals(intervals):
    runs = simulate_runs(np.random.default_rng(0), 80.0, 0.05, 3, intervals)
    assert isinstance(fit_critical_interval(fit_examples_ratios(runs)), str)
    assert fit_ratio_table(runs).critical_intervals == {} and fit_ratio_table(runs).gaps


def test_critical_interval_without_noise_is_the_true_one():
    runs = simulate_runs(np.random.default_rng(0), 80.0, 1e-6, 3)
    critical = fit_critical_interval(fit_examples_ratios(runs))
    assert critical.value == pytest.approx(80.0, rel=0.02)
    assert critical.predict_ratio(32, 8).value == pytest.approx(true_ratio(32, 80.0, 8), rel=0.02)
    assert critical.predict_ratio(1, 4).high == critical.predict_ratio(16, 1).high == 1.0
    assert critical.missing_measurements(128) is None and critical.missing_measurements(256)
    assert critical.missing_measurements(2) is None and critical.missing_measurements(1) is None
    long = fit_critical_interval(
        fit_examples_ratios(simulate_runs(np.random.default_rng(0), 80.0, 1e-6, 3, (16, 64, 256)))
    )
    assert long.missing_measurements(8) is None and "16 to 256" in long.missing_measurements(7)


def test_runs_at_the_target_with_their_first_average_do_not_tell_the_critical_interval():
    runs = simulate_runs(np.random.default_rng(0), 80.0, 0.05, 3)
    early = [(f"local:{2**12}", WORKERS, BATCH, 0.05, seed, 2.0**12 * BATCH, 1) for seed in range(3)]
    ratios = fit_examples_ratios(pd.concat([runs, build_runs(early)]))
    assert [ratio.key.exchange for ratio in ratios if ratio.is_upper_bound] == [f"local:{2**12}"]
    assert fit_critical_interval(ratios).value == fit_critical_interval(fit_examples_ratios(runs)).value
    two_and_early = [ratio for ratio in ratios if ratio.key.exchange != "local:4"]
    assert "after more than one of them; there are 2" in fit_critical_interval(two_and_early)


def test_best_interval_is_where_the_time_is_shortest():
    compute, exchange, critical = 0.05, 0.4, 60.0
    steps = np.arange(1, 200)
    times = (1 + excess_steps(steps, WORKERS) / critical) * (compute + exchange / steps)
    best = find_best_interval(critical / (1 - 1 / WORKERS), exchange, compute)
    assert abs(best - steps[times.argmin()]) <= 1
    assert find_best_interval(1.0, exchange, compute) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_the_truth_and_predictions_are_near_it(seeds):
    covered, inside, beyond = [], [], []
    rng = np.random.default_rng(seeds)
    for critical_interval in (20, 80, 400):
        for noise in (0.05, 0.1, 0.15):
            for _ in range(4):
                ratios = fit_examples_ratios(simulate_runs(rng, critical_interval, noise, seeds))
                critical = fit_critical_interval(ratios)
                intervals = [int(ratio.key.exchange.partition(":")[2]) for ratio in ratios]
                covered += [
                    ratio.interval.includes(true_ratio(interval, critical_interval))
                    for ratio, interval in zip(ratios, intervals, strict=True)
                ]
                if not isinstance(critical, str):
                    covered.append(critical.interval.includes(critical_interval))
                    errors = {
                        interval: critical.predict_ratio(interval, 4).value / true_ratio(interval, critical_interval)
                        for interval in (8, 32, 128)
                    }
                    inside += [errors[8], errors[32]]
                    beyond.append(errors[128])
    assert 0.75 <= np.mean(covered) <= 0.9
    assert np.mean(np.abs(np.log(inside)) < np.log(1.1)) >= 0.85
    assert np.mean(np.abs(np.log(beyond)) < np.log(1.25)) >= 0.85
