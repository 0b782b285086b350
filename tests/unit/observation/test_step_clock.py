"""Tests of the order of events that a clock of steps takes for data, computing and exchange."""

import pytest
import torch

from equipoise.observation.step_clock import StepClock
from equipoise.observation.step_sampling import BLOCK_STEPS, PARTS_EVERY, STEP_PARTS


@pytest.fixture
def clock():
    return StepClock(torch.device("cpu"), has_exchange=True)


def name_spans(clock):
    return [name for name, _, _ in clock.timer.spans]


def train_micro_batch(clock):
    clock.begin_forward()
    clock.end_computing()
    clock.end_backward()


def test_time_before_the_first_forward_pass_is_not_counted(clock):
    train_micro_batch(clock)
    assert clock.end_step() == 1
    assert name_spans(clock) == ["compute", "exchange", "compute"]


def test_time_from_a_step_to_the_next_forward_pass_is_data(clock):
    train_micro_batch(clock)
    clock.end_step()
    train_micro_batch(clock)
    assert clock.end_step() == 1
    assert name_spans(clock)[3:] == ["data", "compute", "exchange", "compute"]


def test_time_from_a_backward_pass_to_a_forward_pass_is_data_and_to_a_step_computing(clock):
    for _ in range(3):
        train_micro_batch(clock)
    assert clock.end_step() == 3
    assert name_spans(clock) == ["compute", "exchange", "data"] * 2 + ["compute", "exchange", "compute"]


def test_spans_are_contiguous(clock):
    for _ in range(2):
        for _ in range(2):
            train_micro_batch(clock)
        clock.end_step()
    ends, starts = [end for _, _, end in clock.timer.spans], [start for _, start, _ in clock.timer.spans]
    assert starts[1:] == ends[:-1]


@pytest.mark.parametrize("is_between_micro_batches", [False, True])
def test_paused_time_is_not_counted(clock, is_between_micro_batches):
    train_micro_batch(clock)
    if not is_between_micro_batches:
        clock.end_step()
    clock.pause()
    train_micro_batch(clock)
    clock.end_step()
    assert "data" not in name_spans(clock)


def test_pause_during_a_forward_pass_changes_nothing(clock):
    clock.begin_forward()
    clock.pause()
    clock.end_computing()
    clock.end_backward()
    clock.end_step()
    assert name_spans(clock) == ["compute", "exchange", "compute"]


def test_two_passes_through_the_model_before_a_backward_pass_are_one_micro_batch(clock):
    clock.begin_forward()
    train_micro_batch(clock)
    assert clock.end_step() == 1


def test_two_backward_passes_through_one_forward_pass_are_one_micro_batch(clock):
    train_micro_batch(clock)
    clock.end_computing()
    clock.end_backward()
    assert clock.end_step() == 1


def test_step_without_a_forward_pass_has_no_micro_batch_and_no_time(clock):
    assert clock.end_step() == 0
    assert clock.pop_seconds() == {}


def test_one_worker_has_no_exchange():
    clock = StepClock(torch.device("cpu"), has_exchange=False)
    train_micro_batch(clock)
    clock.end_step()
    assert set(clock.pop_seconds()) == {"compute"}


def test_step_that_has_not_ended_is_not_counted_and_its_time_not_either(clock):
    train_micro_batch(clock)
    clock.end_step()
    spans = list(clock.timer.spans)
    train_micro_batch(clock)
    seconds = clock.pop_seconds()
    assert sum(seconds.values()) == pytest.approx(sum(end - start for _, start, end in spans))
    assert clock.pop_seconds() == {}


def test_exchange_starts_at_the_last_gradient_that_was_noted(clock):
    clock.begin_forward()
    for _ in range(3):
        clock.end_computing()
    last = clock.computed_mark
    clock.end_unseen_computing()
    clock.end_backward()
    (_, _, computed), (name, start, _) = clock.timer.spans
    assert name == "exchange" and start == computed == last


class SimulatedLoop:
    """Loop on a simulated clock, of which the hooks of untimed steps tell the clock nothing inside of a step."""

    def __init__(self, parts_every):
        self.clock, self.now = StepClock(torch.device("cpu"), has_exchange=True, parts_every=parts_every), 0.0
        self.clock.timer.mark = lambda: self.now
        self.true_seconds = dict.fromkeys(STEP_PARTS, 0.0)

    def spend(self, part, seconds):
        """Let time pass in a part of the step."""
        self.now += seconds
        self.true_seconds[part] += seconds

    def take_step(self, data, computing, exchange, micro_batches=1):
        """Take a step; the seconds are those of each micro-batch."""
        for _ in range(micro_batches):
            self.spend("data", data)
            self.clock.begin_forward()
            self.spend("compute", computing)
            if self.clock.is_timed:
                self.clock.end_computing()
            self.spend("exchange", exchange)
            if self.clock.is_timed:
                self.clock.end_backward()
        self.spend("compute", 1.0)
        self.clock.end_step()


def start_loop(parts_every=PARTS_EVERY):
    """Return a loop after the steps that are all timed, and after its first wait for data, which is not counted."""
    loop = SimulatedLoop(parts_every)
    for _ in range(parts_every * BLOCK_STEPS):
        loop.take_step(1.0, 1.0, 1.0)
    loop.clock.pop_seconds()
    loop.true_seconds = dict.fromkeys(STEP_PARTS, 0.0)
    return loop


def test_parts_of_equal_steps_are_exact_though_few_are_timed():
    loop = start_loop()
    for _ in range(2 * BLOCK_STEPS):
        loop.take_step(2.0, 6.0, 3.0)
    assert loop.clock.pop_seconds() == pytest.approx(loop.true_seconds)


def test_waits_for_data_between_steps_are_exact_where_few_steps_wait():
    loop = start_loop()
    for step in range(100):
        loop.take_step(50.0 if step in (7, 8, 61) else 0.5, 6.0, 3.0)
    assert loop.clock.pop_seconds() == pytest.approx(loop.true_seconds)


@pytest.mark.parametrize("period", [2, 3, 5, 10, 25, 100])
def test_exchange_that_is_longer_at_every_so_many_steps_is_met_as_often_as_it_occurs(period):
    loop = start_loop()
    for step in range(5000):
        loop.take_step(1.0, 5.0, 20.0 if step % period == 0 else 2.0)
    seconds = loop.clock.pop_seconds()
    assert seconds["exchange"] == pytest.approx(loop.true_seconds["exchange"], rel=0.02)
    assert seconds["data"] == pytest.approx(loop.true_seconds["data"])
    assert sum(seconds.values()) == pytest.approx(sum(loop.true_seconds.values()))


def test_waits_for_data_between_micro_batches_are_divided_as_in_timed_steps():
    loop = start_loop()
    for _ in range(2 * BLOCK_STEPS):
        loop.take_step(2.0, 6.0, 3.0, micro_batches=3)
    assert loop.clock.pop_seconds() == pytest.approx(loop.true_seconds)


def test_start_up_says_nothing_of_later_steps_and_lap_without_a_timed_step_is_divided_as_the_one_before():
    loop = SimulatedLoop(PARTS_EVERY)
    for step in range((PARTS_EVERY + 1) * BLOCK_STEPS):  # the block after those that stand for themselves is timed
        loop.take_step(1.0, 500.0 if step == 0 else 5.0, 2.0)
    loop.clock.pop_seconds()
    loop.true_seconds = dict.fromkeys(STEP_PARTS, 0.0)
    assert not loop.clock.is_timed
    loop.take_step(1.0, 5.0, 2.0)
    assert loop.clock.pop_seconds() == pytest.approx(loop.true_seconds)


def test_pause_between_micro_batches_of_an_untimed_step_is_not_counted():
    loop = start_loop()
    for _ in range(BLOCK_STEPS):
        loop.take_step(1.0, 5.0, 2.0)
    assert not loop.clock.is_timed
    loop.spend("data", 1.0)
    loop.clock.begin_forward()
    loop.spend("compute", 5.0)
    loop.clock.pause()
    loop.now += 1000.0
    loop.clock.pause()
    loop.take_step(0.0, 5.0, 0.0)
    assert sum(loop.clock.pop_seconds().values()) == pytest.approx(sum(loop.true_seconds.values()))


def test_pause_during_the_only_forward_pass_of_an_untimed_step_changes_nothing():
    loop = start_loop()
    for _ in range(BLOCK_STEPS):
        loop.take_step(1.0, 5.0, 2.0)
    loop.spend("data", 1.0)
    loop.clock.begin_forward()
    loop.spend("compute", 5.0)
    loop.clock.pause()
    loop.spend("compute", 5.0)
    assert loop.clock.end_step() == 1
    assert sum(loop.clock.pop_seconds().values()) == pytest.approx(sum(loop.true_seconds.values()))


def test_steps_that_have_not_ended_are_not_counted_at_any_lap(clock):
    for _ in range(2):
        train_micro_batch(clock)
        clock.end_step()
    assert clock.pop_seconds()
    for _ in range(3):
        train_micro_batch(clock)
        assert clock.pop_seconds() == {}
