"""Where a measured examples ratio may be applied, from ratios and lines that are given."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student_t

from equipoise.planning.exchange_choice.critical_interval import CriticalInterval, fit_critical_interval, fit_ratio_line
from equipoise.planning.exchange_choice.critical_staleness import CriticalStaleness, fit_critical_staleness
from equipoise.planning.exchange_choice.examples_ratio import MAX_LOG_RATIO, ExamplesRatio, RatioKey
from equipoise.planning.exchange_choice.ratio_table import RatioTable, SyncFamily
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness


def build_ratio(exchange, workers=4, batch=128, value=1.5, **changes):
    values = {"lr": 0.05, "exact_lr": 0.1, "log_error": 0.01, "degrees_of_freedom": 5.0, "pairs": 3, "reached": 3}
    key = RatioKey(exchange, workers, batch)
    return ExamplesRatio(**{"key": key, "log_mean": math.log(value), **values, **changes})


@pytest.mark.parametrize(
    ("pairs", "reached", "is_bound"), [(4, 2, False), (4, 1, True), (3, 2, False), (3, 1, True), (1, 0, True)]
)
def test_a_ratio_is_a_lower_bound_where_less_than_half_of_the_runs_reach_the_target(pairs, reached, is_bound):
    assert build_ratio("bf16", pairs=pairs, reached=reached).is_lower_bound == is_bound


@pytest.mark.parametrize(("reached", "early", "is_bound"), [(2, 1, False), (3, 1, False), (3, 2, True), (3, 0, False)])
def test_a_ratio_is_an_upper_bound_where_most_runs_are_there_at_their_first_average(reached, early, is_bound):
    assert build_ratio("local:8", reached=reached, at_first_average=early).is_upper_bound == is_bound


def test_interval_of_a_ratio_is_that_of_student():
    ratio = build_ratio("bf16", value=1.5, log_error=0.1, degrees_of_freedom=2.5)
    low, high = student_t.interval(0.8, 2.5, math.log(1.5), 0.1)
    assert (ratio.interval.value, ratio.interval.low) == pytest.approx((1.5, math.exp(low)))
    assert ratio.interval.high == pytest.approx(math.exp(high))
    wide = build_ratio("bf16", log_error=100.0).interval
    assert (wide.low, wide.high) == pytest.approx((math.exp(-MAX_LOG_RATIO), math.exp(MAX_LOG_RATIO)))
    draws = np.log(ratio.sample_ratio(20_000))
    assert np.median(draws) == pytest.approx(math.log(1.5), abs=0.01)
    assert np.quantile(draws, [0.1, 0.9]) == pytest.approx([low, high], abs=0.02)
    assert np.abs(np.log(build_ratio("bf16", log_error=100.0).sample_ratio(100))).max() <= MAX_LOG_RATIO


def test_a_ratio_is_applied_up_to_twice_or_half_its_global_batch():
    table = RatioTable(ratios=(build_ratio("bf16"),))
    for batch in (64, 128, 256):
        assert table.find_ratio("bf16", 2, batch).value == pytest.approx(1.5)
    assert table.find_ratio("bf16", 4, 63) is table.find_ratio("bf16", 4, 257) is None
    assert table.find_ratio("int8", 4, 128) is None


def test_the_nearest_global_batch_counts_and_lower_bounds_do_not():
    near, far = build_ratio("bf16", batch=256, value=1.2), build_ratio("bf16", batch=128, value=1.9)
    table = RatioTable(ratios=(far, near))
    assert table.find_ratio("bf16", 4, 200).value == pytest.approx(1.2)
    assert table.find_ratio("bf16", 4, 180).value == pytest.approx(1.9)
    missed = RatioTable(ratios=(far, replace(near, reached=0)))
    assert missed.find_ratio("bf16", 4, 200).value == pytest.approx(1.9)
    assert missed.find_ratio("bf16", 4, 400) is None


@pytest.mark.parametrize(("workers", "batch", "is_measured"), [(4, 128, True), (2, 128, False), (4, 256, False)])
def test_only_the_setting_of_the_runs_is_measured(workers, batch, is_measured):
    ratio = build_ratio("bf16", momentum=0.5)
    estimate = RatioTable(ratios=(ratio,)).find_ratio("bf16", workers, batch)
    assert (estimate.is_measured, estimate.lr, estimate.momentum) == (is_measured, 0.05, 0.5)
    assert (estimate.draws == ratio.sample_ratio(len(estimate.draws))).all()


@pytest.mark.parametrize("name", ["local:8", "async:2"])
def test_without_a_line_other_numbers_of_workers_tell_nothing_of_workers_that_drift_apart(name):
    table = RatioTable(ratios=(build_ratio(name, workers=2, value=1.1), build_ratio(name, value=1.5)))
    assert table.find_ratio(name, 4, 128).value == pytest.approx(1.5) and table.find_ratio(name, 8, 128) is None


def test_a_way_failed_where_all_of_its_settings_did():
    missed, other = build_ratio("bf16", reached=0), build_ratio("bf16", batch=256, reached=1)
    assert RatioTable(ratios=(missed, other)).find_failure("bf16") is missed
    assert RatioTable(ratios=(missed, replace(other, reached=2))).find_failure("bf16") is None
    assert RatioTable(ratios=(missed,)).find_failure("int8") is None


SLOPE = 1 / 50


def build_interval_table(batch=128, compression="none", lack_of_fit=0.0):
    """Build the table of a critical interval of 50 steps, from runs at three values of H."""
    suffix = "" if compression == "none" else f"/{compression}"
    ratios = tuple(
        build_ratio(f"local:{interval}{suffix}", batch=batch, value=9.0, lr=lr)
        for interval, lr in ((4, 0.4), (16, 0.2), (64, 0.1))
    )
    line = CriticalInterval(slope=SLOPE, slope_draws=np.full(200, SLOPE), ratios=ratios, lack_of_fit_sd=lack_of_fit)
    return RatioTable(ratios=ratios, critical_intervals={SyncFamily("local", compression, 4, batch): line})


def test_the_line_tells_the_ratio_at_other_intervals_and_workers():
    table = build_interval_table()
    for interval, workers in ((2, 4), (8, 2), (16, 4), (64, 8)):
        estimate = table.find_ratio(f"local:{interval}", workers, 128)
        assert estimate.value == pytest.approx(1 + (interval - 1) * (1 - 1 / workers) * SLOPE)
    assert table.find_ratio("diloco:8", 4, 128) is table.find_ratio("local:8/bf16", 4, 128) is None
    assert table.find_ratio("local:8", 4, 256) and table.find_ratio("local:8", 4, 64)
    assert table.find_ratio("local:8", 4, 257) is table.find_ratio("local:8", 4, 63) is None


def test_the_nearest_measured_interval_gives_the_learning_rate():
    table = build_interval_table()
    rates = {interval: table.find_ratio(f"local:{interval}", 4, 128).lr for interval in (2, 9, 11, 39, 41, 128)}
    assert rates == {2: 0.4, 9: 0.4, 11: 0.2, 39: 0.2, 41: 0.1, 128: 0.1}
    settings = [("local:16", 4, 128), ("local:15", 4, 128), ("local:16", 2, 128), ("local:16", 4, 256)]
    assert [table.find_ratio(*setting).is_measured for setting in settings] == [True, False, False, False]


def test_intervals_are_predicted_up_to_an_octave_outside_of_the_measured_ones():
    (line,) = build_interval_table().critical_intervals.values()
    assert line.measured_intervals == [4, 16, 64] and line.value == 50
    assert [line.missing_measurements(interval) for interval in (1, 2, 4, 128)] == [None] * 4
    assert line.missing_measurements(129).endswith("every 129 steps than those of 4 to 64")
    spreads = {interval: np.log(line.sample_ratio(interval, 4)).std() for interval in (2, 4, 16, 64, 128)}
    assert max(spreads[4], spreads[16], spreads[64]) < 1e-9
    assert spreads[2] == pytest.approx(0.06, rel=0.2) and spreads[128] == pytest.approx(0.06, rel=0.2)
    outside = line.predict_ratio(128, 4)
    inside = line.predict_ratio(16, 4)
    assert outside.low < outside.value < outside.high and inside.low == pytest.approx(inside.high)
    (rough,) = build_interval_table(lack_of_fit=0.08).critical_intervals.values()
    assert np.log(rough.sample_ratio(128, 4)).std() == pytest.approx(0.1, rel=0.2)  # 0.06 and 0.08 at right angles
    assert (rough.sample_ratio(1, 4) == 1).all() and (rough.sample_ratio(16, 1) == 1).all()


@pytest.mark.parametrize("compression", ["none", "bf16"])
def test_names_have_the_powers_of_two_that_the_line_predicts(compression):
    suffix = "" if compression == "none" else f"/{compression}"
    names = build_interval_table(compression=compression).names
    assert {*names} == {f"local:{2**power}{suffix}" for power in range(1, 8)} and len(names) == 7
    assert names[:3] == [f"local:{interval}{suffix}" for interval in (4, 16, 64)]


def build_staleness_table(servers="", workers=4, critical=10.0, stalenesses=(1, 2, 3)):
    ratios = tuple(
        build_ratio(f"async:{bound}{servers}", workers, value=1 + mean_staleness(workers, bound) / critical,
                    lr=0.1 * bound, momentum=0.1 * bound)
        for bound in stalenesses
    )  # fmt: skip
    line = fit_ratio_line(CriticalStaleness, np.array([mean_staleness(workers, s) for s in stalenesses]), ratios)
    return RatioTable(ratios=ratios, critical_stalenesses={SyncFamily("async", "none", workers, 128): line})


def test_the_line_tells_the_ratio_of_older_gradients_on_as_many_workers():
    table = build_staleness_table()
    for bound in (1, 2, 3):
        estimate = table.find_ratio(f"async:{bound}", 4, 128)
        assert estimate.value == pytest.approx(1 + mean_staleness(4, bound) / 10, rel=0.02)
        assert estimate.is_measured and (estimate.lr, estimate.momentum) == pytest.approx((0.1 * bound, 0.1 * bound))
    unbounded, last = table.find_ratio("async:9", 4, 128), table.find_ratio("async:3", 4, 128)
    assert unbounded.value == last.value and (unbounded.draws == last.draws).all()
    assert not table.find_ratio("async:2", 4, 256).is_measured and table.find_ratio("async:2", 4, 64)
    assert table.find_ratio("async:2", 4, 257) is table.find_ratio("async:2", 8, 128) is None
    assert table.find_ratio("async:2/servers:2", 4, 128).value == table.find_ratio("async:2", 4, 128).value


def test_names_have_every_bound_below_the_workers():
    assert {*build_staleness_table("/servers:2").names} == {f"async:{bound}/servers:2" for bound in (1, 2, 3)}
    assert {*build_staleness_table(workers=6, stalenesses=(1, 3, 5)).names} == {f"async:{b}" for b in range(1, 6)}


def test_gradients_older_than_those_of_any_run_are_not_predicted():
    (line,) = build_staleness_table(workers=8, stalenesses=(1, 2, 4)).critical_stalenesses.values()
    assert line.missing_measurements(4, 8) is line.missing_measurements(5, 6) is None
    oldest = mean_staleness(8, 4)
    missing = line.missing_measurements(5, 8)
    assert f"{mean_staleness(8, 5):.2g} updates old" in missing and missing.endswith(f"measured are {oldest:.2g}")


def test_critical_staleness_needs_three_different_ages():
    ratios = build_staleness_table().ratios
    critical = fit_critical_staleness(ratios)
    assert critical.value == pytest.approx(10, rel=0.02) and critical.interval.includes(critical.value)
    assert critical.predict_ratio(0, 4).high == 1
    assert "there are 2" in fit_critical_staleness(ratios[:2])
    assert "there are 2" in fit_critical_staleness([*ratios[:2], replace(ratios[2], reached=0)])
    close = build_staleness_table(workers=40, stalenesses=(20, 22, 24)).ratios
    assert "more different age" in fit_critical_staleness(close)
    noisy = [replace(ratio, log_error=1.0) for ratio in ratios]
    assert fit_critical_staleness(noisy).startswith("more seeds")


def test_interval_of_a_critical_value_is_that_of_its_draws():
    draws = np.linspace(0.05, 0.25, 201)
    line = CriticalInterval(slope=0.1, slope_draws=draws, ratios=(), lack_of_fit_sd=0.0)
    assert (line.interval.low, line.interval.value) == pytest.approx((1 / draws[180], 10))
    assert line.interval.high == pytest.approx(1 / draws[20])


def test_two_steps_between_exchanges_are_an_interval():
    counted = {
        intervals: fit_critical_interval([build_ratio(f"local:{interval}") for interval in intervals])
        for intervals in ((2, 3, 5), (1, 3, 5))
    }
    assert "further apart than 2 to 5 steps" in counted[2, 3, 5] and "there are 2" in counted[1, 3, 5]
