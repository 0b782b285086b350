"""The batch from which on several workers are faster, where both times are known in closed form."""

import numpy as np
import pytest

from equipoise.planning.device_comparison.crossing_batch import find_crossing
from tests.support.device_comparisons import (
    BATCHES,
    CROSSING,
    EXCHANGE_SECONDS,
    SECONDS_PER_EXAMPLE,
    own_step_seconds,
)


def build_tables(batches, exchange, noise=(1.0,)):
    one = np.array([[own_step_seconds(batch) * factor for batch in batches] for factor in noise])
    several = np.array([[own_step_seconds(batch / 2) + exchange for batch in batches] for _ in noise])
    return one, several


def test_crossing_is_where_the_saved_computing_equals_the_exchange():
    crossing = find_crossing(BATCHES, *build_tables(BATCHES, EXCHANGE_SECONDS))
    assert crossing.outcome == "crosses"
    assert crossing.batch.value == pytest.approx(CROSSING, rel=0.03)  # on a chord between 128 and 256
    assert crossing.batch.low == crossing.batch.high == crossing.batch.value  # turns without noise


def test_turns_that_differ_widen_the_interval_around_the_crossing():
    noise = np.exp(np.linspace(-0.1, 0.1, 9))  # whose median is 1
    batch = find_crossing(BATCHES, *build_tables(BATCHES, EXCHANGE_SECONDS, noise)).batch
    assert batch.low < CROSSING < batch.high and batch.high / batch.low > 1.05


def test_several_workers_that_are_faster_everywhere_or_nowhere_have_no_crossing():
    assert find_crossing(BATCHES, *build_tables(BATCHES, 0.0)).outcome == "always"
    exchange = 600 * SECONDS_PER_EXAMPLE
    slower = find_crossing(BATCHES, *build_tables(BATCHES, exchange))
    assert slower.outcome == "never" and slower.batch is None
    assert slower.beyond == pytest.approx(1200)  # both times are lines


def test_lines_that_do_not_meet_promise_nothing_beyond():
    one = np.array([[own_step_seconds(batch) for batch in BATCHES]])
    assert find_crossing(BATCHES, one, 2 * one).beyond is None


def test_last_crossing_counts_where_noise_makes_several():
    batches = (8, 16, 32, 64)
    one = np.ones((1, 4))
    several = np.array([[2.0, 0.5, 2.0, 0.5]])
    assert find_crossing(batches, one, several).batch.value == pytest.approx((32 * 64) ** 0.5)
