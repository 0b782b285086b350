"""Tests of the lap that follows from what all workers have measured."""

import math
from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.observation.worker_lap import (
    NO_DRAW,
    ONE_GRADIENT,
    UNEQUAL_GRADIENTS,
    UNUSABLE_GRADIENTS,
    WorkerLap,
    build_lap,
    count_hosts,
)

CONFIG = TrainConfig(workload="mine", workers=2, batch_size=8)
FIRST = WorkerLap(
    data_seconds=1.0,
    compute_seconds=4.0,
    exchange_seconds=2.0,
    local_norms=6.0,
    total_norms=3.0,
    draws=3,
    norm_seconds=0.01,
    end_seconds=0.001,
    losses=4.0,
    num_losses=2,
    host=1,
)
SECOND = FIRST._replace(
    data_seconds=0.5, compute_seconds=6.0, exchange_seconds=0.25, local_norms=12.0, losses=2.0, host=2
)


def build(*rows, config=CONFIG):
    return build_lap(rows, config, steps=5, last_step=20, lr=0.1, metric=0.5)


def test_times_are_those_of_the_slowest_worker_and_norms_means_over_workers_and_draws():
    lap, problem = build(FIRST, SECOND)
    assert (lap.seconds, lap.data_seconds, lap.compute_seconds, lap.exchange_seconds) == (7.0, 1.0, 6.0, 2.0)
    assert (lap.local_norm, lap.total_norm, lap.draws) == (3.0, 1.0, 3) and problem is None
    assert (lap.local_batch, lap.total_batch, lap.workers) == (8, 16, 2)
    assert (lap.step, lap.steps, lap.seen, lap.examples, lap.loss, lap.metric) == (20, 5, 320, 80, 1.5, 0.5)


@pytest.mark.parametrize(
    ("rows", "config", "problem"),
    [
        ((FIRST,), replace(CONFIG, workers=1), ONE_GRADIENT),
        ((FIRST,), CONFIG, NO_DRAW),
        ((FIRST._replace(draws=0), SECOND), CONFIG, NO_DRAW),
        ((FIRST, SECOND._replace(local_norms=math.nan)), CONFIG, UNUSABLE_GRADIENTS),
        ((FIRST, SECOND._replace(total_norms=3.1)), CONFIG, UNEQUAL_GRADIENTS),
    ],
)
def test_lap_without_comparable_norms_has_none_and_a_reason(rows, config, problem):
    lap, reason = build(*rows, config=config)
    assert reason == problem and lap.noise_terms() is None and lap.draws == 0


def test_lap_without_losses_has_none_and_one_that_is_not_finite_neither():
    assert build(FIRST._replace(num_losses=0), SECOND._replace(num_losses=0))[0].loss is None
    assert build(FIRST._replace(losses=math.inf), SECOND)[0].loss is None


def test_machines_are_counted():
    assert count_hosts([FIRST, SECOND, SECOND]) == 2


def test_totals_that_differ_by_a_thousandth_are_those_of_one_gradient():
    assert build(FIRST, SECOND._replace(total_norms=3.0029))[1] is None
    assert build(FIRST, SECOND._replace(total_norms=3.0031))[1] == UNEQUAL_GRADIENTS


def test_lap_of_fewer_workers_than_configured_has_the_loss_of_those_that_answered():
    lap, reason = build(FIRST)
    assert (lap.loss, lap.seconds, reason) == (2.0, 7.0, NO_DRAW)


def test_one_worker_that_accumulates_has_norms():
    lap, reason = build(FIRST, config=replace(CONFIG, workers=1, grad_accumulation=2))
    assert reason is None and (lap.local_norm, lap.total_batch) == (2.0, 16)
