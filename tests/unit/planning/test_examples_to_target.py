import numpy as np
import pandas as pd
import pytest

from equipoise.planning.examples_to_target import find_turned_up_batches, fit_examples_curve, summarize_batches
from equipoise.planning.setting_runs import censored_mean_log, estimate_lr_curvature

MIN_EXAMPLES, CRITICAL_BATCH = 20_000.0, 300.0


def simulate_runs(
    batches, seeds=3, noise=0.1, draw=0, max_examples=np.inf, min_examples=MIN_EXAMPLES, critical_batch=CRITICAL_BATCH
):
    rng = np.random.default_rng(draw)
    rows = [(b, 0.1, s, min_examples * (1 + b / critical_batch) * np.exp(noise * rng.standard_normal()))
            for b in batches for s in range(seeds)]  # fmt: skip
    table = pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples"])
    reached = (table.examples <= max_examples).astype(int)
    return table.assign(reached=reached, examples=table.examples.clip(upper=max_examples))


def test_exact_runs_give_the_exact_curve():
    curve = fit_examples_curve(simulate_runs([32, 128, 512, 2048], noise=0.0))
    assert curve.critical_batch[0] == pytest.approx(CRITICAL_BATCH, rel=1e-3)
    assert curve.min_examples[0] == pytest.approx(MIN_EXAMPLES, rel=1e-3)
    assert curve.examples_at(1000) == pytest.approx(MIN_EXAMPLES * (1 + 1000 / CRITICAL_BATCH), rel=1e-3)
    assert curve.identifiable


def test_critical_batch_is_estimated_from_three_batches_and_three_seeds():
    is_close = [
        abs(fit_examples_curve(simulate_runs([50, 300, 2400], draw=draw)).critical_batch[0] / CRITICAL_BATCH - 1)
        <= 0.25
        for draw in range(25)
    ]
    assert sum(is_close) >= 0.8 * len(is_close)


def test_critical_batch_interval_has_its_coverage():
    is_covered = []
    for draw in range(25):
        _, low, high = fit_examples_curve(simulate_runs([50, 150, 300, 900, 2400], draw=draw)).critical_batch
        is_covered.append(low <= CRITICAL_BATCH <= high)
    assert 15 <= sum(is_covered) <= 25  # 80 % intervals: 20 expected


def test_batches_all_below_the_critical_one_do_not_identify_it():
    refused = [
        not fit_examples_curve(simulate_runs([20, 60, 140], noise=0.2, draw=draw)).identifiable for draw in range(10)
    ]
    assert sum(refused) >= 8


def test_two_batches_do_not_identify_the_curve_and_one_predicts_only_itself():
    two_batch_curve = fit_examples_curve(simulate_runs([64, 512]))
    assert not two_batch_curve.identifiable
    assert two_batch_curve.examples_at(256) is not None
    one_batch_curve = fit_examples_curve(simulate_runs([64]))
    assert one_batch_curve.examples_at(64) == pytest.approx(MIN_EXAMPLES * (1 + 64 / CRITICAL_BATCH), rel=0.2)
    assert one_batch_curve.examples_at(128) is None
    assert "three global batches" in one_batch_curve.missing_measurements(128)


def test_censored_runs_count_as_more_than_their_cap():
    censored_runs = simulate_runs([50, 300, 2400], seeds=8, max_examples=180_000)
    assert 0 < (censored_runs.reached == 0).sum() < 8
    curve = fit_examples_curve(censored_runs)
    true_log_examples = np.log(MIN_EXAMPLES * (1 + 2400 / CRITICAL_BATCH))
    reached_runs = censored_runs[(censored_runs.global_batch == 2400) & (censored_runs.reached == 1)]
    mean_without_censored = np.log(reached_runs.examples).mean()
    assert mean_without_censored < curve.batch_summary.log_examples[2400]
    assert curve.batch_summary.log_examples[2400] == pytest.approx(true_log_examples, abs=0.1)


def test_censored_mean_without_censored_runs_is_the_mean():
    table = simulate_runs([64], seeds=5)
    assert censored_mean_log(table, 0.1) == pytest.approx(np.log(table.examples).mean())
    assert censored_mean_log(table.assign(reached=0), 0.1) == np.inf


def test_best_learning_rate_is_chosen_per_batch():
    tables = []
    for batch, best_lr in ((32, 0.1), (256, 0.4)):
        for lr in (0.05, 0.1, 0.2, 0.4, 0.8):
            slowdown = 1 + np.log2(lr / best_lr) ** 2 / 4
            runs = simulate_runs([batch], noise=0.02)
            tables.append(runs.assign(lr=lr, examples=runs.examples * slowdown))
    curve = fit_examples_curve(pd.concat(tables))
    assert curve.batch_summary.lr.to_dict() == {32: 0.1, 256: 0.4}
    assert curve.lr_at(32 * np.sqrt(8)) == pytest.approx(0.2)


def test_small_batches_that_need_more_examples_are_left_out_of_the_fit():
    table = simulate_runs([8, 64, 300, 2400])
    table.loc[table.global_batch == 8, "examples"] *= 4
    curve = fit_examples_curve(table)
    assert curve.left_out_batches == [8]
    assert curve.critical_batch[0] == pytest.approx(CRITICAL_BATCH, rel=0.4)
    assert curve.examples_at(8) > 3 * MIN_EXAMPLES


def test_batch_that_never_reaches_the_target_is_left_out_and_not_predicted():
    table = simulate_runs([64, 300, 2400])
    table.loc[table.global_batch == 64, "reached"] = 0
    curve = fit_examples_curve(table)
    assert curve.left_out_batches == [64]
    assert curve.examples_at(64) is None
    assert "reaches the target" in curve.missing_measurements(64)


def test_noise_alone_does_not_turn_up_the_curve():
    batch_summary = fit_examples_curve(simulate_runs([16, 32, 64, 128], noise=0.1)).batch_summary
    assert find_turned_up_batches(batch_summary) == []


def test_seed_noise_is_the_default_without_repeats_and_measured_with_many():
    single_runs = pd.DataFrame(
        [(b, 0.1, 0, 5000 * (1 + b / 300), 1) for b in (32, 128, 512)],
        columns=["global_batch", "lr", "seed", "examples", "reached"],
    )
    assert fit_examples_curve(single_runs).seed_noise_at(32) == (pytest.approx(0.15), 3)
    rng = np.random.default_rng(0)
    noise_by_batch = {32: 0.05, 128: 0.2, 512: 0.05}
    rows = [
        (b, 0.1, s, 5000 * (1 + b / 300) * np.exp(noise_by_batch[b] * rng.standard_normal()), 1)
        for b in noise_by_batch
        for s in range(40)
    ]
    curve = fit_examples_curve(pd.DataFrame(rows, columns=single_runs.columns))
    assert [curve.seed_noise_at(b)[0] for b in noise_by_batch] == pytest.approx([*noise_by_batch.values()], rel=0.3)
    assert curve.seed_noise_at(32)[1] > 40
    assert 0.05 < curve.seed_noise_at(64)[0] < 0.2  # not measured: the noise of all measured batches


def test_runs_without_repeats_have_wide_intervals():
    curve = fit_examples_curve(simulate_runs([32, 128, 512], seeds=1, noise=0.0))
    low, high = np.quantile(curve.sample_examples(128), [0.1, 0.9])
    assert np.log(high / low) > 0.1


def simulate_lr_sweep(curvature, octaves=(-1, 0, 1)):
    """Simulate runs without noise whose examples grow with the squared distance from the best learning rate."""
    runs = simulate_runs([32, 128, 512], noise=0.0)
    return pd.concat([runs.assign(lr=0.1 * 2.0**k, examples=runs.examples * np.exp(curvature * k**2)) for k in octaves])


def test_cost_of_a_wrong_learning_rate_is_measured_from_its_neighbours():
    assert estimate_lr_curvature(simulate_lr_sweep(0.3)) == pytest.approx(0.3)
    assert estimate_lr_curvature(simulate_lr_sweep(0.3, octaves=(0, 2))) == 0.0  # too far to tell
    assert estimate_lr_curvature(simulate_lr_sweep(0.3, octaves=(0,))) == 0.0
    unknown = simulate_lr_sweep(0.3, octaves=(0,)).assign(lr=np.nan)
    assert estimate_lr_curvature(pd.concat([simulate_lr_sweep(0.3), unknown])) == pytest.approx(0.3)
    assert estimate_lr_curvature(simulate_lr_sweep(0.3).drop(columns="lr").assign(lr=np.nan)) == 0.0
    diverged = simulate_lr_sweep(0.3)
    diverged.loc[diverged.lr > 0.1, "reached"] = 0
    assert estimate_lr_curvature(diverged) == pytest.approx(0.3)


def test_batches_between_trials_pay_for_their_interpolated_learning_rate():
    certain, sensitive = (fit_examples_curve(simulate_lr_sweep(curvature)) for curvature in (0.0, 0.4))
    assert sensitive.examples_at(256) == pytest.approx(certain.examples_at(256) * np.exp(0.1), rel=1e-3)
    assert sensitive.examples_at(128) == pytest.approx(certain.examples_at(128), rel=1e-3)
    spread = [np.log(curve.sample_examples(256)).std() for curve in (certain, sensitive)]
    assert spread[1] > spread[0]


def test_standard_error_of_a_batch_falls_with_its_runs_that_reached_the_target():
    runs = pd.concat([simulate_runs([64], seeds=1), simulate_runs([128], seeds=4), simulate_runs([256], seeds=2)])
    runs.loc[runs.global_batch == 256, "reached"] = 0
    errors = summarize_batches(runs, seed_noise=0.1, shrunk_noise=0.2).error
    assert errors.to_dict() == pytest.approx({64: 0.2, 128: 0.1, 256: 0.2})


def test_repeats_of_one_seed_count_as_one_run():
    rows = [(batch, 0.1, seed, 1000.0 + batch, 1) for batch in (8, 16) for seed in (0.0, 0.0, 1.0, np.nan, np.nan)]
    curve = fit_examples_curve(pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached"]))
    assert curve.count_runs(8) == 4 and curve.count_runs(9) == 0
