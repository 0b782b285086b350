from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.plan import (
    ClusterShape,
    build_option,
    collect_warnings,
    enumerate_options,
    explain_option,
    find_bottleneck,
    find_knee,
    find_pareto_front,
    find_runner_up,
    probability_faster,
    rank_options,
)
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepTimeForm

FEWEST, CRITICAL = 2e6, 4000.0  # examples, and examples a step
COMPUTE, EXCHANGE = 1e-5, 0.02  # seconds an example, and a step
STEPS = FEWEST / CRITICAL
WORKERS = 4


def system(g, exchange=EXCHANGE):
    volume = exchange * WORKERS / (2 * (WORKERS - 1))
    parameters = {"a": 0.0, "c": COMPUTE, "local_alpha": 0.0, "local_volume": volume, "g": g}
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


def curve(batches=(64, 100_000)):
    logs = np.log(FEWEST), np.log(CRITICAL)
    logs_there = logs[0] + np.log1p(np.array(batches) / CRITICAL)
    columns = {"lr": 0.1, "log_examples": logs_there, "error": 0.01, "runs": 3, "reached": 1.0}
    columns |= {"squares": 0.0002, "own_free": 2}
    means = pd.DataFrame(columns, index=list(batches))
    draws = np.tile(logs, (100, 1))
    return ExamplesCurve(
        best_lr_runs=means,
        batch_summary=means,
        left_out_batches=[],
        log_parameters=logs,
        log_parameter_draws=draws,
        seed_noise=0.01,
        lack_of_fit_sd=0.0,
    )


def fastest(g, about):
    """The fastest of many batches around one."""
    batches = [WORKERS * round(about * share / WORKERS) for share in np.linspace(0.9, 1.1, 401)]
    return rank_options(enumerate_options(system(g), curve(), [ClusterShape(1, WORKERS)], batches))[0]


def test_with_perfect_overlap_the_best_batch_computes_as_long_as_it_exchanges():
    batch = EXCHANGE * WORKERS / COMPUTE
    found = fastest(1e4, batch)
    assert found.global_batch == pytest.approx(batch, rel=1e-3)
    assert found.seconds == pytest.approx(STEPS * (EXCHANGE + COMPUTE * CRITICAL / WORKERS), rel=1e-3)


def test_without_overlap_the_best_batch_is_the_geometric_mean_of_both_ends():
    batch = np.sqrt(EXCHANGE * WORKERS * CRITICAL / COMPUTE)
    found = fastest(1.0, batch)
    assert found.global_batch == pytest.approx(batch, rel=2e-2)  # the minimum is flat
    assert found.seconds == pytest.approx(
        STEPS * (EXCHANGE**0.5 + (COMPUTE * CRITICAL / WORKERS) ** 0.5) ** 2, rel=1e-3
    )


def everything(g=1.0):
    places, batches = [ClusterShape(1, 1), ClusterShape(1, 2), ClusterShape(1, WORKERS)], [2**k for k in range(6, 16)]
    return enumerate_options(system(g, exchange=2e-4), curve(), places, batches)


def test_the_front_trades_time_for_cost_and_nothing_beats_it():
    found = everything()
    along = find_pareto_front(found)
    times, costs = ([getattr(one, name) for one in along] for name in ("seconds", "worker_seconds"))
    assert times == sorted(times) and costs == sorted(costs, reverse=True) and len(along) > 2
    for one in found:
        assert any(best.seconds <= one.seconds and best.worker_seconds <= one.worker_seconds for best in along)
    assert find_knee(along) in along


def test_the_cheapest_is_always_the_fewest_workers():
    cheapest = min(everything(), key=lambda one: one.worker_seconds)
    assert cheapest.workers == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_deadline_is_kept_by_the_cheapest_and_a_budget_by_the_fastest(share):
    found = everything()
    along = find_pareto_front(found)
    deadline = along[0].seconds + share * (along[-1].seconds - along[0].seconds)
    by_deadline = rank_options(found, deadline=deadline)[0]
    assert by_deadline.seconds <= deadline
    assert by_deadline.worker_seconds == min(one.worker_seconds for one in found if one.seconds <= deadline)
    budget = along[-1].worker_seconds + share * (along[0].worker_seconds - along[-1].worker_seconds)
    by_budget = rank_options(found, budget=budget)[0]
    assert by_budget.worker_seconds <= budget
    assert by_budget.seconds == min(one.seconds for one in found if one.worker_seconds <= budget)
    assert rank_options(found, deadline=along[0].seconds / 2) == []


def test_only_batches_that_workers_can_share_and_that_were_timed_are_offered():
    found = enumerate_options(system(1.0), curve(), [ClusterShape(1, 1), ClusterShape(1, WORKERS)], [6, 64, 200_000])
    assert {(one.workers, one.global_batch) for one in found} == {(1, 6), (1, 64), (WORKERS, 64), (WORKERS, 200_000)}


def test_what_binds_is_the_longer_part_or_the_noise():
    options = {one.global_batch: one for one in everything() if one.workers == WORKERS}
    assert find_bottleneck(options[64], curve()) == "exchange"
    assert find_bottleneck(options[32768], curve()) == "noise"
    blunt = replace(
        curve(),
        log_parameters=(np.log(FEWEST), np.log(1e9)),
        log_parameter_draws=np.tile((np.log(FEWEST), np.log(1e9)), (100, 1)),
    )
    assert find_bottleneck(options[32768], blunt) == "compute"


def test_an_optimum_at_the_edge_is_said():
    largest = curve(batches=(64, 256, 1024))
    found = rank_options(enumerate_options(system(1e4), largest, [ClusterShape(1, WORKERS)], [64, 256, 1024]))
    assert found[0].global_batch == 1024
    said = " ".join(collect_warnings(found[0], system(1e4), largest))
    assert "largest batch measured (1,024): measure 2,048" in said


def test_the_runner_up_is_another_plan_not_another_place():
    ranked = rank_options(everything())
    second = find_runner_up(ranked)
    assert (second.workers, second.batch) != (ranked[0].workers, ranked[0].batch)
    assert 0.5 <= probability_faster(ranked[0], second) <= 1
    assert f"{second.workers} x {second.batch}" in explain_option(ranked[0], second, curve())


def test_a_machine_whose_pace_drifts_makes_single_runs_less_certain():
    steady, drifting = system(1.0), replace(system(1.0), pace_sd=0.3)
    one, other = (
        build_option(s, curve(), ClusterShape(1, WORKERS), 256).to_json()["seconds"] for s in (steady, drifting)
    )
    assert one["value"] == other["value"]
    assert other["low"] < 0.9 * one["low"] and other["high"] > 1.1 * one["high"]
