"""Ends of real training runs by a metric of which less is better, and of runs without a target."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.record import Record
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record

FALLING = TrainConfig(workload="tests.support.workloads:with_falling_metric", batch_size=32, lr=0.1)


def train_to_end(config):
    """Train to the end and return the training and the metrics of its evaluations."""
    training = Training(config)
    return training, [lap.metric for lap in training.laps() if lap.metric is not None]


def test_falling_metric_ends_the_run_at_the_first_evaluation_below_the_target():
    training, metrics = train_to_end(FALLING)
    assert training.status == "reached_target" and len(metrics) > 2
    assert metrics[0] > 1 and min(metrics[:-1]) > 0.2 >= metrics[-1]
    evaluated = [lap.seen for lap in training.finished_laps if lap.metric is not None]
    assert evaluated[-2] < training.examples_to_target <= evaluated[-1]
    record = build_run_record(training)
    assert (record.target, record.lower_is_better, record.reached) == (0.2, True, True)


def test_direction_of_the_option_is_that_of_the_workload():
    config = replace(FALLING, max_examples=640, target=0.001, lower_is_better=True)
    training, metrics = train_to_end(config)
    assert training.status == "max_examples" and min(metrics) > 0.001
    assert build_run_record(training).goal.describe() == "at most 0.001"


def test_run_without_a_target_trains_its_examples_and_its_record_says_so():
    config = TrainConfig(workload="tests.support.workloads:without_target", max_examples=1280, eval_every=320, lr=0.1)
    training, metrics = train_to_end(config)
    assert training.status == "max_examples" and training.examples_seen == 1280 and len(metrics) == 4
    record = build_run_record(training)
    assert (record.target, record.examples_to_target, record.reached) == (None, None, False)
    assert Record.from_json(record.to_json()) == record
    with_target, _ = train_to_end(replace(config, target=0.05))
    assert with_target.status == "reached_target"


UNSTABLE = replace(FALLING, lr=0.2, target=0.0, max_examples=3000, precision="fp64", keep="best")


@pytest.fixture(scope="module")
def unstable_run():
    """A run whose loss falls and rises again."""
    return train_to_end(UNSTABLE)


def test_kept_weights_are_those_of_the_lowest_metric(unstable_run):
    training, metrics = unstable_run
    assert min(metrics) < metrics[-1] and min(metrics) < metrics[0]
    training.load_kept_weights()
    assert training.evaluate(training.workload.validation) == min(metrics)


def test_patience_counts_from_the_lowest_metric(unstable_run):
    _, metrics = unstable_run
    best = metrics.index(min(metrics))
    patience = 2
    expected = next(
        count
        for count in range(1, len(metrics) + 1)
        if count - 1 - metrics[:count].index(min(metrics[:count])) >= patience
    )
    training, patient_metrics = train_to_end(replace(UNSTABLE, patience=patience))
    assert best > 0 and training.status == "stopped_early"
    assert patient_metrics == metrics[:expected] and expected > patience + 1
