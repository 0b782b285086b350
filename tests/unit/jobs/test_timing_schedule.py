import math

import pytest

from jobs.timing.timing_schedule import (
    MIN_TIMING_ROUNDS,
    StepProbe,
    choose_batches,
    estimate_step_seconds,
    find_widest_gap,
)

BATCHES = [8, 16, 32, 64, 128, 256, 512]


class SimulatedGroup:
    """Group of workers whose steps take `fixed + each * batch` seconds, with a clock that probes advance."""

    def __init__(self, fixed, each, limit, max_batch=math.inf):
        self.fixed, self.each, self.limit, self.max_batch = fixed, each, limit, max_batch
        self.now = 0.0
        self.probed = []

    def probe(self, batch):
        self.probed.append(batch)
        if batch > self.max_batch:
            return None
        probe = StepProbe(
            step_seconds=self.fixed + self.each * batch,
            exchange_seconds=0.0,
            evaluation_seconds=0.05,
            setup_seconds=0.05,
        )
        self.now += probe.probe_seconds
        return probe

    def choose(self, batches=BATCHES, known=None):
        return choose_batches(batches, self.probe, lambda: self.limit - self.now, known or {})

    def timing_end(self, schedule):
        """Return when the fewest rounds of all batch sizes end."""
        return self.now + sum(probe.timing_seconds for probe in schedule.probes.values())


def test_all_batches_are_timed_where_there_is_time():
    schedule = SimulatedGroup(fixed=0.001, each=0.00001, limit=20.0).choose()
    assert sorted(schedule.probes) == BATCHES
    assert not schedule.unaffordable and not schedule.too_large


@pytest.mark.parametrize("limit", [6.0, 12.0, 18.0, 36.0, 72.0])
@pytest.mark.parametrize("each", [0.001, 0.005, 0.015, 0.05])
def test_what_is_chosen_can_be_timed_within_the_limit(limit, each):
    group = SimulatedGroup(fixed=0.01, each=each, limit=limit)
    schedule = group.choose()
    assert sorted([*schedule.probes, *schedule.unaffordable]) == BATCHES
    if len(schedule.probes) > 1:
        assert group.timing_end(schedule) <= 1.05 * limit


def test_smallest_and_largest_affordable_batch_come_first_then_the_middle():
    group = SimulatedGroup(fixed=0.01, each=0.015, limit=36.0)
    schedule = group.choose()
    smallest, largest, middle = group.probed[:3]
    assert smallest == 8
    assert largest == max(schedule.probes) < 512
    assert smallest < middle < largest
    assert {batch for batch in BATCHES if batch > largest} <= set(schedule.unaffordable)


def test_too_slow_steps_leave_nothing_to_time_and_estimates_of_what_they_need():
    schedule = SimulatedGroup(fixed=0.0, each=1.0, limit=10.0).choose()
    assert not schedule.probes
    assert schedule.unaffordable[8].step_seconds == 8.0
    assert schedule.unaffordable[16].step_seconds == 16.0
    assert schedule.unaffordable[8].timing_seconds >= MIN_TIMING_ROUNDS * 2 * 8.0


def test_batches_beyond_memory_are_too_large_and_larger_ones_are_not_tried_again():
    group = SimulatedGroup(fixed=0.001, each=0.00001, limit=20.0, max_batch=100)
    schedule = group.choose()
    assert sorted(schedule.too_large) == [128, 256, 512]
    assert sorted(schedule.probes) == [8, 16, 32, 64]
    group = SimulatedGroup(fixed=0.001, each=0.00001, limit=20.0, max_batch=4)
    schedule = group.choose()
    assert schedule.too_large and not schedule.probes


def test_batches_that_an_earlier_command_left_out_are_added_to_its_timings():
    group = SimulatedGroup(fixed=0.01, each=0.015, limit=60.0)
    schedule = group.choose([256, 512], known={8: 0.13, 128: 1.93})
    assert 256 in schedule.probes
    assert schedule.unaffordable.get(512) is None or schedule.unaffordable[512].step_seconds == pytest.approx(
        7.69, rel=0.01
    )


def test_step_times_are_estimated_on_the_line_through_the_nearest_measured_ones():
    assert estimate_step_seconds(64, {8: 0.1}) == pytest.approx(0.8)
    assert estimate_step_seconds(4, {8: 0.1}) == 0.1
    assert estimate_step_seconds(16, {8: 0.1}, exchange_seconds=0.06) == pytest.approx(0.14)
    assert estimate_step_seconds(64, {8: 0.1, 16: 0.12}) == pytest.approx(0.24)
    assert estimate_step_seconds(32, {8: 0.1, 16: 0.12, 64: 0.48}) == pytest.approx(0.24)
    assert estimate_step_seconds(64, {8: 0.1, 16: 0.05}) == 0.1


def test_widest_gap_is_measured_by_ratio():
    assert find_widest_gap([16, 32, 64], [8, 128]) == 32
    assert find_widest_gap([16, 64, 256], [8, 512]) == 64


@pytest.mark.parametrize(("step_seconds", "lap_steps"), [(0.001, 100), (0.03, 3), (0.5, 1), (7.0, 1)])
def test_laps_last_a_tenth_of_a_second_or_a_step(step_seconds, lap_steps):
    probe = StepProbe(step_seconds=step_seconds, exchange_seconds=0.0, evaluation_seconds=0.0, setup_seconds=0.0)
    assert probe.lap_steps == lap_steps
    lap_seconds = lap_steps * step_seconds
    assert probe.round_seconds >= lap_seconds + 0.15 and probe.round_seconds <= 2 * lap_seconds + 0.25
