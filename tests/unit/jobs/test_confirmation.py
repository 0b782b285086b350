"""The confirmation run against the predictions of its plan."""

from dataclasses import replace

import pytest

from equipoise.planning.document import IntervalEstimate
from jobs.ray_tune.confirmation import compare_with_plan
from tests.unit.dashboards.test_demo_report import PLAN
from tests.unit.dashboards.test_training_run import record


def test_seconds_to_the_target_are_those_until_its_examples():
    run = replace(record(), status="reached_target", examples_to_target=400.0)  # of 500, in 5 laps of 10 steps
    plan = replace(PLAN, seconds=IntervalEstimate(value=0.2, low=0.19, high=0.21), examples=500.0)
    confirmation = compare_with_plan(run, plan)
    assert confirmation.seconds == pytest.approx(0.2) and confirmation.inside
    assert confirmation.examples.ratio == pytest.approx(0.8)
    assert confirmation.step.value == pytest.approx(0.005)
    assert confirmation.step.ratio == pytest.approx(0.005 / plan.step.seconds)
    assert not compare_with_plan(run, replace(plan, seconds=IntervalEstimate(value=0.3, low=0.25, high=0.4))).inside


def test_run_that_missed_the_target_has_no_checks():
    confirmation = compare_with_plan(record(), PLAN)
    assert confirmation.seconds is None and not confirmation.inside
    assert confirmation.to_json().keys() == {"seconds", "predicted", "inside"}
