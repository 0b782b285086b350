"""Curves of examples whose numbers are given: what they predict, from which run on, and how sure they are."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.examples_to_target import (
    ExamplesCurve,
    estimate_lack_of_fit,
    find_turned_up_batches,
    select_best_lr,
)
from equipoise.planning.sections.examples_section import predict_examples

FEWEST, CRITICAL = 1000.0, 100.0
BATCHES = (10, 50, 200)


def hyperbola(batch):
    return FEWEST * (1 + batch / CRITICAL)


def build_summary(batches=BATCHES, **columns):
    values = {"lr": 0.1, "log_examples": [math.log(hyperbola(batch)) for batch in batches], "error": 0.05, "runs": 3}
    values |= {"reached": 1.0, "squares": 0.02, "own_free": 2}
    return pd.DataFrame(values | columns, index=list(batches), dtype=float)


def build_curve(summary=None, critical_range=(80.0, 125.0), draws=100, **changes):
    """Build a curve whose critical batch is at either end of a range in half of the draws."""
    summary = build_summary() if summary is None else summary
    ends = np.repeat(np.log(critical_range), draws // 2)
    values = {
        "best_lr_runs": summary,
        "batch_summary": summary,
        "left_out_batches": [],
        "log_parameters": (math.log(FEWEST), math.log(CRITICAL)),
        "log_parameter_draws": np.stack([np.full(draws, math.log(FEWEST)), ends], axis=1),
        "seed_noise": 0.1,
        "lack_of_fit_sd": 0.0,
    }
    return ExamplesCurve(**values | changes)


def test_parameters_have_the_interval_of_their_draws():
    assert build_curve().critical_batch == pytest.approx((100, 80, 125))
    assert build_curve().min_examples == pytest.approx((1000, 1000, 1000))
    unfitted = build_curve(log_parameters=None)
    assert unfitted.critical_batch is unfitted.min_examples is None and not unfitted.identifiable


@pytest.mark.parametrize(
    ("changes", "identifiable"),
    [
        ({}, True),
        ({"critical_range": (50.0, 199.9)}, True),
        ({"critical_range": (50.0, 200.1)}, False),
        ({"left_out_batches": [10]}, False),
        ({"summary": build_summary((10, 50))}, False),
        ({"summary": build_summary((10, 50, 100.01))}, True),
        ({"summary": build_summary((10, 50, 99.9))}, False),
        ({"summary": build_summary((10, 20, 50, 200)), "left_out_batches": [200]}, False),
    ],
)
def test_critical_batch_is_identified_by_three_batches_that_reach_it_and_a_narrow_interval(changes, identifiable):
    assert build_curve(**changes).identifiable == identifiable


def test_noise_of_a_batch_joins_its_own_scatter_with_that_of_all():
    curve = build_curve()
    pooled = (0.15**2 + 6 * 0.1**2) / 7  # six degrees of freedom beside the usual noise
    assert curve.seed_noise_at(50) == (pytest.approx(math.sqrt((4 * pooled + 0.02) / 6)), 5)
    assert curve.seed_noise_at(51) == (pytest.approx(math.sqrt(pooled)), 3)


def test_runs_of_a_batch_are_counted_by_their_seeds_or_else_by_their_share():
    assert build_curve(build_summary(reached=[1.0, 0.66, 0.33])).count_runs(50) == 2
    assert build_curve().count_runs(51) == 0
    runs = pd.DataFrame(
        {"global_batch": [50, 50, 50, 50, 10], "reached": [1, 1, 0, 1, 1], "seed": [1, 1, 2, np.nan, 3]}
    )
    assert build_curve(best_lr_runs=runs).count_runs(50) == 2


def test_measured_batches_without_a_fit_have_their_mean():
    curve = build_curve(log_parameters=None)
    assert curve.examples_at(50) == pytest.approx(hyperbola(50)) and curve.examples_at(60) is None
    assert "three global batches" in curve.missing_measurements(60) and curve.sample_examples(60) is None
    assert np.log(curve.sample_examples(50)).std() == pytest.approx(0.05, rel=0.25)


@pytest.mark.parametrize(("reached", "is_known"), [(0.5, True), (0.49, False)])
def test_a_batch_is_known_from_half_of_its_runs_on(reached, is_known):
    curve = build_curve(build_summary(reached=[reached, 1.0, 1.0]))
    assert (curve.missing_measurements(10) is None) == is_known == (curve.examples_at(10) is not None)
    assert curve.missing_measurements(50) is curve.missing_measurements(60) is None


def test_a_batch_that_was_left_out_keeps_its_measurement():
    summary = build_summary(log_examples=[math.log(9000.0), *build_summary().log_examples[1:]])
    curve = build_curve(summary, left_out_batches=[10])
    assert curve.examples_at(10) == pytest.approx(9000)
    assert hyperbola(10) < build_curve(summary).examples_at(10) < 9000


def test_measurement_and_fit_are_weighted_by_their_variance():
    shifted = build_summary(log_examples=[math.log(hyperbola(batch)) + 0.3 for batch in BATCHES], error=0.1)
    curve = build_curve(shifted, lack_of_fit_sd=0.2)
    logs = [math.log(curve.examples_at(batch) / hyperbola(batch)) for batch in BATCHES]
    assert all(0.2 < log < 0.28 for log in logs)  # 0.04 of the fit against 0.01 of the measurement
    exact_fit = build_curve(shifted, critical_range=(CRITICAL, CRITICAL))
    assert exact_fit.examples_at(50) == pytest.approx(hyperbola(50))
    assert np.log(exact_fit.sample_examples(50)).std() < 1e-9


def test_between_measured_batches_the_fit_counts_and_a_wrong_learning_rate_costs():
    curve = build_curve(critical_range=(CRITICAL, CRITICAL))
    assert curve.examples_at(100) == pytest.approx(hyperbola(100))
    costly = replace(curve, lr_curvature=0.4)
    assert costly.examples_at(100) == pytest.approx(hyperbola(100) * math.exp(0.4 * 0.25))
    extra = np.log(costly.sample_examples(100) / hyperbola(100))
    assert extra.min() >= 0 and extra.mean() == pytest.approx(0.4 * 0.25, rel=0.35)
    rough = replace(curve, lack_of_fit_sd=0.2)
    assert np.log(rough.sample_examples(100)).std() == pytest.approx(0.2, rel=0.25)


def test_learning_rates_are_interpolated_in_logs_and_constant_outside():
    curve = build_curve(build_summary(lr=[0.1, np.nan, 0.4]))
    assert (curve.lr_at(10), curve.lr_at(200)) == (0.1, 0.4)
    assert curve.lr_at(math.sqrt(10 * 200)) == pytest.approx(0.2) and curve.lr_at(50) == pytest.approx(
        0.1 * 4 ** (math.log(5) / math.log(20))
    )
    assert (curve.lr_at(1), curve.lr_at(9999)) == pytest.approx((0.1, 0.4))
    assert build_curve(build_summary(lr=np.nan)).lr_at(10) is None


def test_lack_of_fit_is_what_the_errors_of_the_means_leave():
    logs = [math.log(hyperbola(batch)) + shift for batch, shift in zip(BATCHES, (0.2, -0.1, 0.1), strict=True)]
    summary, parameters = build_summary(log_examples=logs, error=0.1), (math.log(FEWEST), math.log(CRITICAL))
    assert estimate_lack_of_fit(summary, parameters) == pytest.approx(math.sqrt(0.06 - 0.03))
    assert estimate_lack_of_fit(build_summary(), parameters) == 0
    four = build_summary(
        (10, 50, 200, 800), error=0.0, log_examples=[math.log(hyperbola(b)) + 0.1 for b in (10, 50, 200, 800)]
    )
    assert estimate_lack_of_fit(four, parameters) == pytest.approx(math.sqrt(0.04 / 2))


@pytest.mark.parametrize(
    ("logs", "error", "left_out"),
    [
        ([5.0, 4.89, 5.5], 0.01, [10]),
        ([5.0, 4.91, 5.5], 0.01, []),
        ([5.0, 4.7, 5.5], 0.1, [10]),  # more than twice 0.14
        ([5.0, 4.73, 5.5], 0.1, []),
        ([6.0, 5.0, 4.0], 0.01, [10, 50]),
        ([5.0, 5.5, 5.0], 0.01, []),  # only the smallest ones turn up
    ],
)
def test_smallest_batches_that_clearly_need_more_examples_are_left_out(logs, error, left_out):
    assert find_turned_up_batches(build_summary(log_examples=logs, error=error)) == left_out


def test_batches_that_do_not_train_are_left_out_and_passed_over():
    summary = build_summary(log_examples=[6.0, 1.0, 5.0], error=0.01, reached=[1.0, 0.49, 0.5])
    assert find_turned_up_batches(summary) == [50, 10]


def build_runs(*rows):
    return pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached"])


def test_a_rate_with_one_lucky_run_needs_to_be_clearly_better():
    tried = [(8, 0.1, seed, 1000, 1) for seed in range(4)]

    def best_lr(examples):
        return select_best_lr(build_runs(*tried, (8, 0.2, 0, examples, 1)), 0.4).lr.unique().tolist()

    # half a standard error: exp(0.2) with one run, exp(0.1) with four
    assert best_lr(1000 * math.exp(-0.11)) == [0.2] and best_lr(1000 * math.exp(-0.09)) == [0.1]


def test_rates_that_never_reach_the_target_are_last_and_unknown_ones_are_one_rate():
    rows = [(8, 0.1, 0, 500, 0), (8, 0.2, 0, 9000, 1), (16, None, 0, 700, 1), (16, None, 1, 800, 1)]
    best = select_best_lr(build_runs(*rows), 0.1)
    assert best[best.global_batch == 8].lr.tolist() == [0.2] and len(best[best.global_batch == 16]) == 2


def test_predictions_have_the_interval_of_their_draws_where_something_is_known():
    known = predict_examples(build_curve(), 50)
    assert known.low < known.examples < known.high and (known.global_batch, known.lr) == (50, 0.1)
    unknown = predict_examples(build_curve(log_parameters=None), 60)
    assert unknown.examples is unknown.low is unknown.high is None
