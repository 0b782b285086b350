from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.build_document import build_predicted_setting
from equipoise.planning.plan import (
    ClusterShape,
    build_option,
    compare_with_runner_up,
    enumerate_options,
    explain_option,
    find_knee,
    find_pareto_front,
    find_runner_up,
    list_candidate_batches,
    probability_faster,
    put_measured_first,
    rank_options,
)
from tests.support.plan_options import (
    CRITICAL_BATCH,
    EXCHANGE_SECONDS,
    MIN_EXAMPLES,
    SECONDS_PER_EXAMPLE,
    WORKERS,
    build_curve,
    build_step_fit,
    enumerate_all_options,
)

MIN_STEPS = MIN_EXAMPLES / CRITICAL_BATCH


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


def test_runner_up_differs_in_workers_or_batch():
    ranked = rank_options(enumerate_all_options())
    second = find_runner_up(ranked)
    assert (second.workers, second.batch) != (ranked[0].workers, ranked[0].batch)
    assert 0.5 <= probability_faster(ranked[0], second) <= 1
    assert f"{second.workers} x {second.batch}" in explain_option(ranked[0], second, build_curve())


def test_time_of_the_runner_up_is_relative_to_that_of_the_option():
    template = enumerate_all_options()[0]
    plan = replace(template, workers=2, batch=32, examples=640.0, step_seconds=0.4, seconds_draws=np.full(4, 4.0))
    other = replace(plan, batch=64, step_seconds=1.2, seconds_draws=np.full(4, 6.0))
    assert (plan.seconds, other.seconds) == (pytest.approx(4.0), pytest.approx(6.0))
    assert "2 x 64, +50% in time" in compare_with_runner_up(plan, other)


def test_drifting_machine_pace_widens_the_interval():
    steady_fit, drifting_fit = build_step_fit(1.0), replace(build_step_fit(1.0), pace_sd=0.3)
    steady, drifting = (
        build_predicted_setting(build_option(step_fit, build_curve(), ClusterShape(1, WORKERS), 256 // WORKERS)).seconds
        for step_fit in (steady_fit, drifting_fit)
    )
    assert steady.value == drifting.value
    assert drifting.low < 0.9 * steady.low and drifting.high > 1.1 * steady.high
