"""Directions of a metric: a target of a falling metric is the mirror image of one of a rising metric."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.config import TrainConfig
from equipoise.runs.target import Target, command_target

METRICS = st.floats(allow_nan=False, allow_infinity=False)


@given(metric=METRICS, other=METRICS, value=METRICS)
def test_direction_is_mirrored_by_negating_metric_and_target(metric, other, value):
    rising, falling = Target(value=value), Target(value=-value, lower_is_better=True)
    assert rising.is_reached(metric) == falling.is_reached(-metric) == (metric >= value)
    assert rising.is_better(metric, other) == falling.is_better(-metric, -other) == (metric > other)


@given(metrics=st.lists(METRICS, min_size=1), value=METRICS)
def test_best_metric_is_mirrored_and_no_other_one_is_better(metrics, value):
    rising, falling = Target(value=value), Target(value=-value, lower_is_better=True)
    best = rising.best(metrics)
    assert falling.best([-metric for metric in metrics]) == -best
    assert not any(rising.is_better(metric, best) for metric in metrics)
    assert rising.is_reached(best) == any(map(rising.is_reached, metrics))


@given(metric=METRICS)
def test_metric_reaches_itself_and_is_not_better_than_itself(metric):
    for lower_is_better in (False, True):
        target = Target(value=metric, lower_is_better=lower_is_better)
        assert target.is_reached(metric) and not target.is_better(metric, metric)


@pytest.mark.parametrize("lower_is_better", [False, True])
def test_no_metric_reaches_no_target_and_a_metric_that_is_no_number_reaches_none(lower_is_better):
    no_target = Target(value=None, lower_is_better=lower_is_better)
    assert not any(map(no_target.is_reached, (-math.inf, 0.0, math.inf)))
    assert not Target(value=0.5, lower_is_better=lower_is_better).is_reached(math.nan)


def test_target_is_described_with_its_direction():
    assert Target(value=0.95).describe() == "at least 0.95"
    assert Target(value=0.2, lower_is_better=True).describe() == "at most 0.2"
    assert Target(value=None).describe() == "none"
    assert Target(value=0.5, metric_name="mAP").describe() == "at least 0.5 mAP"


def test_targets_of_one_metric_are_each_once_and_the_easiest_first():
    rising, falling = Target(value=0.5), Target(value=2.0, lower_is_better=True)
    assert [target.value for target in rising.list_targets([0.9, 0.7, 0.9])] == [0.7, 0.9]
    assert [target.value for target in falling.list_targets([1, 3.0, 2.0])] == [3.0, 2.0, 1.0]
    assert all(target.lower_is_better for target in falling.list_targets([1.0]))
    assert rising.list_targets([]) == (rising,)


def test_target_of_a_command_is_that_of_its_options():
    config = TrainConfig(command="train", target=0.2, lower_is_better=True)
    assert command_target(config) == Target(value=0.2, lower_is_better=True)
    assert command_target(TrainConfig(command="train")) == Target(value=None)
