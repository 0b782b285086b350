import math
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.sweep_budget import (
    SweepBudget,
    count_trial_rounds,
    estimate_examples_to_target,
    estimate_progress,
    estimate_trial_seconds,
    suggest_budget,
)
from equipoise.runs.record import Lap, Record


def build_trial(*metrics, target=0.9, lap_seconds=2.0, lower_is_better=False):
    """Build the record of an unfinished trial with an evaluation after every 100 examples."""
    laps = [
        Lap(step=i, steps=1, seen=100 * i, examples=100, workers=1, lr=0.1, loss=1.0, seconds=lap_seconds,
            data_seconds=0.0, compute_seconds=lap_seconds, exchange_seconds=0.0, metric=metric)
        for i, metric in enumerate(metrics, 1)
    ]  # fmt: skip
    return Record(config=TrainConfig(workload="digits"), machine=HardwareFacts(), laps=laps, status="cut_off",
                  target=target, lower_is_better=lower_is_better, examples_to_target=None, test=None)  # fmt: skip


def test_timing_takes_at_most_two_fifths_of_the_budget():
    budget = SweepBudget(seconds=100.0)
    assert budget.timing_seconds == 40.0
    assert SweepBudget(seconds=math.inf).timing_seconds == math.inf


@pytest.mark.parametrize(
    ("timing", "trials", "budget"),
    [(16.0, 0.0, 60), (0.0, 60.0, 190), (16.0, 60.0, 190), (0.0, 1.0, 40), (600.0, 0.0, 2300)],
)
def test_suggested_budget_has_time_for_both_parts_with_a_margin(timing, trials, budget):
    assert suggest_budget(timing_seconds=timing, trials_seconds=trials) == budget


def test_a_budget_that_was_too_small_for_timing_is_at_least_doubled():
    assert suggest_budget(timing_seconds=10.0, given_timing_seconds=48.0) == 240  # 120 s were given
    assert suggest_budget(timing_seconds=100.0, given_timing_seconds=48.0) == 380


def test_examples_to_the_target_are_guessed_from_the_progress():
    assert estimate_examples_to_target(build_trial(0.3, 0.45)) == pytest.approx(800)
    assert estimate_examples_to_target(build_trial(0.3, 0.9 / math.sqrt(2), None)) == pytest.approx(600)
    assert estimate_examples_to_target(build_trial(0.0)) == 2000
    assert estimate_examples_to_target(build_trial(None, None)) == 4000


def test_metrics_below_zero_count_from_the_lowest():
    assert estimate_examples_to_target(build_trial(-4.0, -2.0, target=-1.0)) == pytest.approx(200 * (3 / 2) ** 2)
    assert estimate_examples_to_target(build_trial(None, 0.5, target=0.0)) == 4000  # no progress can be told


def test_plan_waits_for_two_trials():
    assert [count_trial_rounds(concurrent) for concurrent in (1, 2, 3)] == [2, 1, 1]


def build_falling_trial(*metrics, target=0.2):
    """Build the record of an unfinished trial whose metric is better the lower it is."""
    return build_trial(*metrics, target=target, lower_is_better=True)


def test_progress_of_a_falling_metric_counts_from_its_highest_value():
    assert estimate_progress(build_falling_trial(2.2, 1.2)) == pytest.approx(0.5)
    assert estimate_progress(build_falling_trial(2.2, 1.2, 2.0)) == pytest.approx(0.5)  # the best counts
    assert estimate_progress(build_falling_trial(1.2, 2.2)) == pytest.approx(0.5)
    assert estimate_examples_to_target(build_falling_trial(2.2, 1.2)) == pytest.approx(200 * 4)
    assert estimate_progress(build_falling_trial(-1.0, -3.0, target=-5.0)) == pytest.approx(0.5)


def test_progress_of_a_rising_metric_counts_from_zero_or_below():
    assert estimate_progress(build_trial(0.3, 0.45)) == pytest.approx(0.5)
    assert estimate_progress(build_trial(0.45, 0.3)) == pytest.approx(0.5)
    assert estimate_progress(build_trial(-4.0, -2.0, target=-1.0)) == pytest.approx(2 / 3)


def test_no_progress_without_a_target_an_evaluation_or_a_second_value_of_a_falling_metric():
    assert estimate_progress(build_trial(None, None)) == 0
    assert estimate_progress(build_trial(0.3, target=None)) == 0
    assert estimate_progress(build_falling_trial(2.2)) == 0
    assert estimate_progress(build_trial(0.0, target=0.0)) == 0
    assert estimate_examples_to_target(build_falling_trial(2.2)) == 2000  # not reached at once


def test_trials_that_come_first_set_the_time():
    fast, slow = build_trial(0.6, 0.8), build_trial(0.1, 0.2)
    middle = build_trial(0.3, 0.5)
    assert estimate_trial_seconds([]) is None
    assert estimate_trial_seconds([replace(slow, laps=[])]) is None
    expected = estimate_examples_to_target(middle) / 50
    assert estimate_trial_seconds([slow, fast, middle]) == pytest.approx(expected)
    assert estimate_trial_seconds([fast]) == pytest.approx(estimate_examples_to_target(fast) / 50)
