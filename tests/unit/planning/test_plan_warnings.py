"""A plan says what limits it, what is uncertain in it, and what to measure next."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.planning.build_document import explain_no_plan
from equipoise.planning.plan import (
    ClusterShape,
    build_option,
    collect_warnings,
    compare_with_runner_up,
    enumerate_options,
    find_bottleneck,
    rank_options,
)
from equipoise.planning.step_time_model import StepTimeForm
from tests.support.plan_options import MIN_EXAMPLES, WORKERS, build_curve, build_step_fit, enumerate_all_options


def test_bottleneck_is_compute_exchange_or_gradient_noise():
    options = {option.global_batch: option for option in enumerate_all_options() if option.workers == WORKERS}
    assert find_bottleneck(options[64], build_curve()) == "exchange"
    assert find_bottleneck(options[32768], build_curve()) == "noise"
    flat_curve = replace(
        build_curve(),
        log_parameters=(np.log(MIN_EXAMPLES), np.log(1e9)),
        log_parameter_draws=np.tile((np.log(MIN_EXAMPLES), np.log(1e9)), (100, 1)),
    )
    assert find_bottleneck(options[32768], flat_curve) == "compute"


def test_warning_names_the_largest_batch_when_it_is_the_best():
    curve = build_curve(batches=(64, 256, 1024))
    ranked = rank_options(enumerate_options(build_step_fit(1e4), curve, [ClusterShape(1, WORKERS)], [64, 256, 1024]))
    assert ranked[0].global_batch == 1024
    warnings = " ".join(collect_warnings(ranked[0], build_step_fit(1e4), curve))
    assert "largest batch measured (1,024): measure 2,048" in warnings
    assert "smallest batch measured" not in warnings and "per worker timed" not in warnings


def warnings_about(option, curve, step_fit=None):
    return " ".join(collect_warnings(option, step_fit or build_step_fit(1e4), curve))


def test_warning_names_the_smallest_batch_only_among_several():
    curve = build_curve(batches=(64, 256, 1024))
    option = build_option(build_step_fit(1e4), curve, ClusterShape(1, WORKERS), 64 // WORKERS)
    assert "smallest batch measured (64): measure 32" in warnings_about(option, curve)
    single = build_curve(batches=(64,))
    assert "smallest" not in warnings_about(build_option(build_step_fit(1e4), single, ClusterShape(1, 4), 16), single)


def test_warning_names_the_largest_batch_per_worker_that_was_timed():
    step_fit, curve = build_step_fit(1e4), build_curve(batches=(64, 256, 1024))
    step_fit.rows.loc[:, "batch"] = step_fit.rows.batch.clip(upper=64)
    option = build_option(step_fit, curve, ClusterShape(1, WORKERS), 256 // WORKERS)
    assert "largest batch per worker timed (64): time 128" in warnings_about(option, curve, step_fit)
    largest = build_option(step_fit, build_curve(batches=(64, 256)), ClusterShape(1, WORKERS), 256 // WORKERS)
    assert "per worker timed" not in warnings_about(largest, build_curve(batches=(64, 256)), step_fit)


def test_warnings_say_what_to_measure_for_a_curve_and_a_step_time():
    one_batch = replace(build_step_fit(1e4), form=StepTimeForm(has_batch_term=False))
    text = warnings_about(None, build_curve(batches=(64, 256, 1024)), one_batch)
    assert "several times larger than 1,024" in text and "time a second one" in text
    assert warnings_about(None, build_curve(batches=(64, 1024, 8192))) == ""


def test_plan_of_few_runs_is_preliminary():
    def warn(runs):
        curve = build_curve(batches=(64, 256, 1024))
        curve.batch_summary["runs"] = runs
        return warnings_about(build_option(build_step_fit(1e4), curve, ClusterShape(1, 4), 64), curve)

    assert "preliminary: the plan rests on 2 runs that reached the target at a global batch of 256" in warn(2)
    assert "preliminary" not in warn(3)


def test_warnings_name_the_batches_that_were_left_out():
    curve = build_curve(batches=(64, 256, 1024, 4096))
    summary = curve.batch_summary.copy()
    summary.loc[4096, "reached"] = 0.1
    curve = replace(curve, batch_summary=summary, best_lr_runs=summary, left_out_batches=[256, 4096])
    text = warnings_about(None, curve)
    assert ("global batches 4,096 most runs were cut off" in text) == bool(curve.missing_measurements(4096))
    assert "global batches 256 need more examples" in text


def test_reason_compares_with_the_runner_up_or_says_what_would_tell():
    template = enumerate_all_options()[0]
    plan = replace(template, workers=2, batch=32, examples=640.0, step_seconds=0.1, seconds_draws=np.array([1.0] * 4))
    other = replace(plan, batch=64, step_seconds=0.16, seconds_draws=np.array([0.8, 0.8, 0.8, 1.2]))
    assert (plan.seconds, other.seconds) == (pytest.approx(1.0), pytest.approx(0.8))
    text = compare_with_runner_up(plan, replace(other, measured=False))
    assert text.startswith("2 x 64 is predicted to take 20% less time, but was not measured, and is faster in 75% of")
    assert text.endswith("trials at a global batch of 128 would tell")
    measured = compare_with_runner_up(plan, replace(other, measured=True))
    assert (
        measured
        == "the runner-up is 2 x 64, -20% in time, slower in 25% of draws (not clearly apart: measure more seeds)"
    )
    slower = replace(other, step_seconds=0.24, seconds_draws=np.array([1.2] * 4), measured=False)
    assert compare_with_runner_up(plan, slower) == (
        "the runner-up is 2 x 64, +20% in time, slower in 100% of draws (clearly apart)"
    )


def test_reason_for_no_plan_names_refuted_settings_only_if_there_were_others_without_them():
    options, curve = enumerate_all_options(), build_curve()
    assert explain_no_plan(options, options, options, curve) == []
    (refuted,) = explain_no_plan(options, [], [], curve)
    assert "with every setting that was measured a training run missed the target" in refuted
    (unsplit,) = explain_no_plan([], [], [], curve)
    assert "measure both tables at common batches" in unsplit
    (limited,) = explain_no_plan(options, options, [], curve)
    assert "no plan is within the given limits" in limited
