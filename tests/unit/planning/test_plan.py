from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import build_predicted_setting, explain_no_plan
from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.plan import (
    ClusterShape,
    build_option,
    collect_warnings,
    compare_with_runner_up,
    enumerate_options,
    explain_option,
    find_bottleneck,
    find_knee,
    find_pareto_front,
    find_runner_up,
    list_candidate_batches,
    probability_faster,
    put_measured_first,
    rank_options,
)
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepTimeForm

MIN_EXAMPLES, CRITICAL_BATCH = 2e6, 4000.0  # examples, and examples per step
SECONDS_PER_EXAMPLE, EXCHANGE_SECONDS = 1e-5, 0.02  # computing, and exchanging per step
MIN_STEPS = MIN_EXAMPLES / CRITICAL_BATCH
WORKERS = 4


def build_step_fit(g, exchange_seconds=EXCHANGE_SECONDS):
    volume = exchange_seconds * WORKERS / (2 * (WORKERS - 1))
    parameters = {"a": 0.0, "c": SECONDS_PER_EXAMPLE, "local_alpha": 0.0, "local_volume": volume, "g": g}
    rows = pd.DataFrame(
        [(1, n, b, 1.0) for n in (1, 2, WORKERS) for b in (1, 100_000)],
        columns=["nodes", "workers", "batch", "seconds"],
    )
    form = StepTimeForm(local_terms=("alpha", "volume"), has_overlap=True)
    return StepTimeFit(
        form=form,
        parameters=parameters,
        relative_error=0.0,
        rows=rows,
        parameter_draws=[parameters],
        residuals=np.zeros(1),
    )


def build_curve(batches=(64, 100_000)):
    log_parameters = np.log(MIN_EXAMPLES), np.log(CRITICAL_BATCH)
    log_examples = log_parameters[0] + np.log1p(np.array(batches) / CRITICAL_BATCH)
    columns = {"lr": 0.1, "log_examples": log_examples, "error": 0.01, "runs": 3, "reached": 1.0}
    columns |= {"squares": 0.0002, "own_free": 2}
    batch_summary = pd.DataFrame(columns, index=list(batches))
    log_parameter_draws = np.tile(log_parameters, (100, 1))
    return ExamplesCurve(
        best_lr_runs=batch_summary,
        batch_summary=batch_summary,
        left_out_batches=[],
        log_parameters=log_parameters,
        log_parameter_draws=log_parameter_draws,
        seed_noise=0.01,
        lack_of_fit_sd=0.0,
    )


def build_timed_fit(batches, workers=(1, 2)):
    """Build a fit whose rows have these batches per worker on each number of workers."""
    rows = pd.DataFrame(
        [(1, n, b, 1.0) for n in workers for b in batches], columns=["nodes", "workers", "batch", "seconds"]
    )
    return replace(build_step_fit(1.0), rows=rows)


def find_fastest_option(g, center_batch):
    """Return the fastest option among 401 batches within 10 % of `center_batch`."""
    batches = [WORKERS * round(center_batch * factor / WORKERS) for factor in np.linspace(0.9, 1.1, 401)]
    return rank_options(enumerate_options(build_step_fit(g), build_curve(), [ClusterShape(1, WORKERS)], batches))[0]


def test_with_perfect_overlap_best_batch_computes_as_long_as_it_exchanges():
    batch = EXCHANGE_SECONDS * WORKERS / SECONDS_PER_EXAMPLE
    fastest = find_fastest_option(1e4, batch)
    assert fastest.global_batch == pytest.approx(batch, rel=1e-3)
    assert fastest.seconds == pytest.approx(
        MIN_STEPS * (EXCHANGE_SECONDS + SECONDS_PER_EXAMPLE * CRITICAL_BATCH / WORKERS), rel=1e-3
    )


def test_without_overlap_best_batch_is_the_geometric_mean_of_balanced_and_critical_batch():
    batch = np.sqrt(EXCHANGE_SECONDS * WORKERS * CRITICAL_BATCH / SECONDS_PER_EXAMPLE)
    fastest = find_fastest_option(1.0, batch)
    assert fastest.global_batch == pytest.approx(batch, rel=2e-2)  # the minimum is flat
    assert fastest.seconds == pytest.approx(
        MIN_STEPS * (EXCHANGE_SECONDS**0.5 + (SECONDS_PER_EXAMPLE * CRITICAL_BATCH / WORKERS) ** 0.5) ** 2, rel=1e-3
    )


def enumerate_all_options(g=1.0):
    shapes, batches = [ClusterShape(1, 1), ClusterShape(1, 2), ClusterShape(1, WORKERS)], [2**k for k in range(6, 16)]
    return enumerate_options(build_step_fit(g, exchange_seconds=2e-4), build_curve(), shapes, batches)


def test_no_option_dominates_the_pareto_front():
    options = enumerate_all_options()
    front = find_pareto_front(options)
    times, costs = ([getattr(option, name) for option in front] for name in ("seconds", "worker_seconds"))
    assert times == sorted(times) and costs == sorted(costs, reverse=True) and len(front) > 2
    for option in options:
        assert any(
            better.seconds <= option.seconds and better.worker_seconds <= option.worker_seconds for better in front
        )
    assert find_knee(front) in front


def test_cheapest_option_has_the_fewest_workers():
    cheapest = min(enumerate_all_options(), key=lambda option: option.worker_seconds)
    assert cheapest.workers == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_cheapest_option_within_deadline_and_fastest_within_budget_rank_first(share):
    options = enumerate_all_options()
    front = find_pareto_front(options)
    deadline = front[0].seconds + share * (front[-1].seconds - front[0].seconds)
    by_deadline = rank_options(options, deadline=deadline)[0]
    assert by_deadline.seconds <= deadline
    assert by_deadline.worker_seconds == min(option.worker_seconds for option in options if option.seconds <= deadline)
    budget = front[-1].worker_seconds + share * (front[0].worker_seconds - front[-1].worker_seconds)
    by_budget = rank_options(options, budget=budget)[0]
    assert by_budget.worker_seconds <= budget
    assert by_budget.seconds == min(option.seconds for option in options if option.worker_seconds <= budget)
    assert rank_options(options, deadline=front[0].seconds / 2) == []


def test_only_divisible_and_timed_batches_are_enumerated():
    options = enumerate_options(
        build_step_fit(1.0), build_curve(), [ClusterShape(1, 1), ClusterShape(1, WORKERS)], [6, 64, 200_000]
    )
    workers_and_batches = {(option.workers, option.global_batch) for option in options}
    assert workers_and_batches == {(1, 6), (1, 64), (WORKERS, 64), (WORKERS, 200_000)}


def test_candidates_between_the_trials_are_timed_batches_and_half_octaves():
    curve = build_curve(batches=(16, 64, 200))
    candidates = list_candidate_batches(build_timed_fit([5, 10, 70, 150]), curve)
    assert candidates == {16, 64, 200, 20, 70, 140, 150, *(24, 32, 48, 96, 128, 192)}


def test_candidates_lie_between_batches_that_train():
    curve = replace(build_curve(batches=(8, 32, 64, 512)), left_out_batches=[8, 512])
    assert list_candidate_batches(build_timed_fit([1]), curve) == {8, 32, 48, 64, 512}
    assert list_candidate_batches(build_timed_fit([1]), replace(curve, left_out_batches=[8, 32, 64, 512])) == {
        8,
        32,
        64,
        512,
    }


def test_batch_between_trials_becomes_the_plan():
    curve = build_curve(batches=(64, 256, 65536))
    step_fit = build_timed_fit([64, 1024, 100_000], workers=(2,))
    ranked = rank_options(
        enumerate_options(step_fit, curve, [ClusterShape(1, 2)], list_candidate_batches(step_fit, curve))
    )
    assert not ranked[0].measured and 256 < ranked[0].global_batch < 65536
    assert put_measured_first(ranked) == ranked


def build_options_with_draws(*options):
    """Build options from whether they are measured, their workers, and their draws of the seconds to the target."""
    template = enumerate_all_options()[0]
    return [
        replace(template, measured=measured, workers=workers, seconds_draws=np.array(draws, float))
        for measured, workers, draws in options
    ]


@pytest.mark.parametrize(
    ("predicted_draws", "first"), [([1] * 9 + [3], 0), ([1] * 8 + [3, 3], 1), ([2] * 10, 1), ([1] * 10, 0)]
)
def test_predicted_option_leads_if_it_is_faster_in_nine_of_ten_draws(predicted_draws, first):
    options = build_options_with_draws((False, 1, predicted_draws), (True, 1, [2] * 10), (True, 1, [1] * 10))
    ranked = put_measured_first(options)
    assert ranked[0] is options[first] and sorted(map(id, ranked)) == sorted(map(id, options))


def test_with_a_deadline_the_predicted_option_must_be_cheaper():
    options = build_options_with_draws((False, 4, [1] * 5), (True, 1, [2] * 5))
    assert put_measured_first(options)[0] is options[0]
    assert put_measured_first(options, by_cost=True)[0] is options[1]


def test_order_stays_where_nothing_was_measured():
    options = build_options_with_draws((False, 1, [2] * 5), (False, 1, [1] * 5))
    assert put_measured_first(options) == options and put_measured_first([]) == []


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


def test_runner_up_differs_in_workers_or_batch():
    ranked = rank_options(enumerate_all_options())
    second = find_runner_up(ranked)
    assert (second.workers, second.batch) != (ranked[0].workers, ranked[0].batch)
    assert 0.5 <= probability_faster(ranked[0], second) <= 1
    assert f"{second.workers} x {second.batch}" in explain_option(ranked[0], second, build_curve())


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


def test_time_of_the_runner_up_is_relative_to_that_of_the_option():
    template = enumerate_all_options()[0]
    plan = replace(template, workers=2, batch=32, examples=640.0, step_seconds=0.4, seconds_draws=np.full(4, 4.0))
    other = replace(plan, batch=64, step_seconds=1.2, seconds_draws=np.full(4, 6.0))
    assert (plan.seconds, other.seconds) == (pytest.approx(4.0), pytest.approx(6.0))
    assert "2 x 64, +50% in time" in compare_with_runner_up(plan, other)


def test_reason_for_no_plan_names_refuted_settings_only_if_there_were_others_without_them():
    options, curve = enumerate_all_options(), build_curve()
    assert explain_no_plan(options, options, options, curve) == []
    (refuted,) = explain_no_plan(options, [], [], curve)
    assert "with every setting that was measured a training run missed the target" in refuted
    (unsplit,) = explain_no_plan([], [], [], curve)
    assert "measure both tables at common batches" in unsplit
    (limited,) = explain_no_plan(options, options, [], curve)
    assert "no plan is within the given limits" in limited


def test_drifting_machine_pace_widens_the_interval():
    steady_fit, drifting_fit = build_step_fit(1.0), replace(build_step_fit(1.0), pace_sd=0.3)
    steady, drifting = (
        build_predicted_setting(build_option(step_fit, build_curve(), ClusterShape(1, WORKERS), 256 // WORKERS)).seconds
        for step_fit in (steady_fit, drifting_fit)
    )
    assert steady.value == drifting.value
    assert drifting.low < 0.9 * steady.low and drifting.high > 1.1 * steady.high
