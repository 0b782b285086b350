"""Weights that a run keeps and when it stops early, by training whose metric rises and falls again."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.runs.run_end import find_best_lap
from equipoise.runs.target import Target
from equipoise.training.loop import Training
from tests.support.gloo import run_with_gloo

# a learning rate at which the metric is best at the 7th of 12 evaluations, and nearly that of chance at the last
UNSTABLE = TrainConfig(workload="digits", lr=0.2, target=2.0, max_examples=3000, precision="fp64", keep="best")
BEST_LAP_INDEX = 6
TARGET = Target(value=UNSTABLE.target)


def copy_weights(training):
    return {name: value.clone() for name, value in training.model.state_dict().items()}


def are_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def train_to_end(training):
    """Train to the end and return the weights after each lap."""
    return [copy_weights(training) for _ in training.laps()]


@pytest.fixture(scope="module")
def undisturbed():
    """A run that was not interrupted, with its weights after each lap."""
    training = Training(UNSTABLE)
    return training, train_to_end(training)


def test_kept_weights_are_those_of_the_best_evaluation(undisturbed):
    training, weights_by_lap = undisturbed
    best = find_best_lap(training.finished_laps, training.target)
    assert best is training.finished_laps[BEST_LAP_INDEX] and len(weights_by_lap) == 12
    training.load_kept_weights()
    assert are_equal(copy_weights(training), weights_by_lap[BEST_LAP_INDEX])
    assert training.evaluate(training.workload.validation) == best.metric


def test_last_weights_are_kept_by_default_and_no_others_are_saved():
    training = Training(replace(UNSTABLE, keep="last", max_examples=1000))
    weights_by_lap = train_to_end(training)
    training.load_kept_weights()
    assert are_equal(copy_weights(training), weights_by_lap[-1])
    assert not [name for name in training.state_dict() if name.startswith("best.")]


def test_keeping_the_best_weights_does_not_change_the_training(undisturbed):
    _, weights_by_lap = undisturbed
    assert are_equal(train_to_end(Training(replace(UNSTABLE, keep="last")))[-1], weights_by_lap[-1])


def resume(config, state, finished_laps):
    """Build a run that continues from the bytes of a saved state."""
    training = Training(config)
    training.load_state_dict(load(state), finished_laps)
    return training


def train_until_interrupted(config, num_laps):
    """Train some laps and return the bytes of the state and the laps."""
    training = Training(config)
    list(islice(training.laps(), num_laps))
    return save(training.state_dict()), training.finished_laps


@pytest.mark.parametrize("num_laps", [0, BEST_LAP_INDEX, BEST_LAP_INDEX + 1, 10, 12])
def test_resumed_run_keeps_the_same_weights(undisturbed, num_laps):
    resumed = resume(UNSTABLE, *train_until_interrupted(UNSTABLE, num_laps))
    train_to_end(resumed)
    resumed.load_kept_weights()
    assert are_equal(copy_weights(resumed), undisturbed[1][BEST_LAP_INDEX])


def test_elastic_restart_with_fewer_workers_keeps_the_best_weights(tmp_path):
    config = replace(UNSTABLE, workers=2, batch_size=16)
    states = run_with_gloo(2, tmp_path, train_until_interrupted, config, 10)
    state, finished_laps = states[0]
    assert find_best_lap(finished_laps, TARGET).step < finished_laps[-1].step
    assert are_equal(load(state), load(states[1][0]))  # whichever worker is the first after a restart has them
    alone = resume(config, state, finished_laps)
    train_to_end(alone)
    assert find_best_lap(alone.finished_laps, TARGET) == find_best_lap(finished_laps, TARGET)
    alone.load_kept_weights()
    best_weights = {name: value for name, value in load(state).items() if name.startswith("best.")}
    assert are_equal({f"best.{name}": value for name, value in copy_weights(alone).items()}, best_weights)


def end_by_patience(config):
    training = Training(config)
    train_to_end(training)
    return training.status, training.reason, len(training.finished_laps)


@pytest.mark.parametrize("workers", [1, 2])
def test_run_stops_after_evaluations_without_a_better_metric(tmp_path, workers):
    config = replace(UNSTABLE, patience=3, workers=workers, batch_size=32 // workers)
    ends = run_with_gloo(workers, tmp_path, end_by_patience, config)
    assert {status for status, _, _ in ends} == {"stopped_early"}
    assert ends[0][1:] == ("the metric has not improved in 3 evaluations", BEST_LAP_INDEX + 1 + 3)
    assert len(set(ends)) == 1


def test_run_resumed_within_its_patience_stops_at_the_same_lap():
    config = replace(UNSTABLE, patience=3)
    resumed = resume(config, *train_until_interrupted(config, BEST_LAP_INDEX + 3))
    assert resumed.status is None
    train_to_end(resumed)
    assert (resumed.status, len(resumed.finished_laps)) == ("stopped_early", BEST_LAP_INDEX + 1 + 3)
    again = resume(config, save(resumed.state_dict()), resumed.finished_laps)
    assert again.status == "stopped_early" and again.reason == resumed.reason
    assert list(again.laps()) == []
