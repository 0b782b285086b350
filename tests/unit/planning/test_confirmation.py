"""What training runs say of a plan: the limits of the predicted interval, and which run counts."""

from dataclasses import replace

import pytest

from equipoise.planning.confirmation import (
    ConfirmationResult,
    PredictionCheck,
    find_plan_status,
    find_run_of_plan,
)
from equipoise.planning.interval import IntervalEstimate

CHECK = PredictionCheck(value=1.0, predicted=1.0, ratio=1.0)


def build_run(seconds, workers=2, batch=16, lr=0.1, nodes=1, **changes):
    return ConfirmationResult(
        nodes=nodes,
        workers=workers,
        batch=batch,
        lr=lr,
        seed=0,
        outcome="reached target",
        seconds=seconds,
        predicted=IntervalEstimate(value=10.0, low=8.0, high=12.0),
        inside=changes.pop("inside", seconds is not None and 8 <= seconds <= 12),
        examples=CHECK,
        step=CHECK,
        **changes,
    )


@pytest.mark.parametrize(
    ("seconds", "side", "status"),
    [
        (7.99, "faster than", "confirmed"),
        (8.0, "inside", "confirmed"),
        (12.0, "inside", "confirmed"),
        (12.01, "slower than", "refuted"),
        (None, None, "refuted"),
    ],
)
def test_a_run_confirms_its_plan_up_to_the_upper_end_of_the_interval(seconds, side, status):
    run = build_run(seconds)
    assert (run.side, run.status, run.global_batch) == (side, status, 32)
    with pytest.raises(ValueError, match="contradicts"):
        build_run(seconds, inside=not run.inside)


def test_a_run_has_a_worker_on_each_node():
    assert build_run(9.0, nodes=2).nodes == 2
    with pytest.raises(ValueError, match="2 workers cannot run on 3 nodes"):
        build_run(9.0, nodes=3)


def test_the_last_run_with_the_settings_of_a_plan_counts():
    plan, first, last = build_run(None), build_run(9.0), build_run(20.0)
    assert find_run_of_plan(plan, [first, last]) is last and find_plan_status(plan, [first, last]) == "not confirmed"
    assert find_plan_status(plan, [last, first]) == "confirmed"
    assert find_run_of_plan(plan, []) is None and find_plan_status(plan, []) == "not confirmed"
    assert find_plan_status(None, [first]) == "not confirmed"


@pytest.mark.parametrize(
    "changes", [{"workers": 4}, {"batch": 8}, {"workers": 4, "batch": 8}, {"exchange": "int8"}, {"lr": 0.2}]
)
def test_runs_with_other_settings_say_nothing(changes):
    assert find_run_of_plan(build_run(None), [build_run(9.0, **changes)]) is None


def test_a_plan_without_a_learning_rate_takes_a_run_with_any():
    plan = replace(build_run(None), lr=None)
    assert find_run_of_plan(plan, [build_run(9.0, lr=0.7)]).lr == 0.7


def test_an_interval_includes_its_ends_and_has_them_in_order():
    interval = IntervalEstimate(value=2.0, low=1.0, high=3.0)
    assert [interval.includes(value) for value in (0.99, 1.0, 3.0, 3.01)] == [False, True, True, False]
    assert IntervalEstimate(value=2.0, low=2.0, high=2.0).includes(2.0)
    with pytest.raises(ValueError, match="from 3 to 1"):
        IntervalEstimate(value=2.0, low=3.0, high=1.0)
