"""Tests of the order of events that a clock of steps takes for data, computing and exchange."""

import pytest
import torch

from equipoise.observation.step_clock import StepClock


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
