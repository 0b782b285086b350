"""Which batch sizes a group of workers can time in the seconds it has.

Each batch size is first probed by a few steps. The smallest comes first, because it costs least, then the largest that
takes at most half of the time left, then those furthest from any other: two identify the time of a step over the batch
size, more show its form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MAX_TIMING_ROUNDS = 5  # over all batch sizes, each in another order, because a machine's pace drifts over seconds
MIN_TIMING_ROUNDS = 2  # the fewest that show how the pace drifts
MIN_STRETCH_SECONDS = 0.15  # timed per round and batch size, after a lap that is not timed
MAX_LAP_SECONDS = 0.1  # of the longest laps; in training they may be shorter, and the cost of a step depends on it
PROBE_STEPS = 3  # forward and backward pass to see whether a batch fits in memory, then two laps of one step


@dataclass(frozen=True, kw_only=True)
class StepProbe:
    """First measurements of one batch size."""

    step_seconds: float
    exchange_seconds: float
    """seconds of a step spent waiting for other workers, the same at every batch size"""
    evaluation_seconds: float
    """seconds of the evaluation after each lap"""
    setup_seconds: float
    """seconds to build the model and the loader, before each stretch"""

    @property
    def lap_steps(self) -> int:
        """Number of steps of a lap."""
        return max(1, round(MAX_LAP_SECONDS / self.step_seconds))

    @property
    def round_seconds(self) -> float:
        """Seconds of one stretch: a lap that is not timed, and timed ones."""
        lap_seconds = self.lap_steps * self.step_seconds
        laps = 1 + math.ceil(MIN_STRETCH_SECONDS / lap_seconds)
        return self.setup_seconds + laps * (lap_seconds + self.evaluation_seconds)

    @property
    def probe_seconds(self) -> float:
        """Seconds of such a probe."""
        return 2 * self.setup_seconds + PROBE_STEPS * self.step_seconds + 2 * self.evaluation_seconds

    @property
    def timing_seconds(self) -> float:
        """Seconds of the fewest rounds."""
        return MIN_TIMING_ROUNDS * self.round_seconds

    @property
    def total_seconds(self) -> float:
        """Seconds of such a probe and of the fewest rounds."""
        return self.probe_seconds + self.timing_seconds


ProbeFunction = Callable[[int], StepProbe | None]
"""measures a batch size; None if it does not fit in memory"""
SecondsLeftFunction = Callable[[], float]


@dataclass(kw_only=True)
class TimingSchedule:
    """Batch sizes to time, and those that are too large or that there is no time for."""

    probes: dict[int, StepProbe] = field(default_factory=dict)
    """batch sizes to time"""
    too_large: list[int] = field(default_factory=list)
    """batch sizes that do not fit in memory"""
    unaffordable: dict[int, StepProbe] = field(default_factory=dict)
    """estimates of the batch sizes that there is no time for"""


def choose_batches(
    batches: Sequence[int],
    probe: ProbeFunction,
    seconds_left: SecondsLeftFunction,
    known_step_seconds: dict[int, float],
) -> TimingSchedule:
    """Probe batch sizes in the order of their worth, as long as there is time to time them.

    `known_step_seconds` are those of batch sizes that an earlier command has timed. The smallest batch size is probed
    in any case: all estimates start from it.
    """
    schedule = TimingSchedule()
    pending = sorted(batches)

    def spare_seconds() -> float:
        return seconds_left() - sum(chosen.timing_seconds for chosen in schedule.probes.values())

    def seconds_needed(batch: int) -> float:
        estimate = estimate_probe(batch, schedule.probes, known_step_seconds)
        return estimate.total_seconds if estimate else 0.0

    def try_batch(batch: int, seconds: float) -> None:
        """Probe a batch size if its estimated time is at most `seconds`, and add it to the schedule."""
        estimate = estimate_probe(batch, schedule.probes, known_step_seconds)
        if estimate and estimate.total_seconds > seconds:
            schedule.unaffordable[batch] = estimate
        elif (schedule.too_large and batch > min(schedule.too_large)) or (measured := probe(batch)) is None:
            schedule.too_large.append(batch)
        else:
            schedule.probes[batch] = measured

    if pending:
        try_batch(pending.pop(0), math.inf)
    if pending and schedule.probes and not known_step_seconds:
        cheap = [batch for batch in pending if seconds_needed(batch) <= spare_seconds() / 2]
        second = max(cheap, default=pending[0])
        pending.remove(second)
        try_batch(second, spare_seconds())
    while pending:
        batch = find_widest_gap(pending, [*schedule.probes, *known_step_seconds])
        pending.remove(batch)
        try_batch(batch, spare_seconds())
    drop_only_batch_without_time(schedule, spare_seconds())
    return schedule


def drop_only_batch_without_time(schedule: TimingSchedule, spare_seconds: float) -> None:
    """Move the only batch size of a schedule to the unaffordable ones if there is no time left for its rounds."""
    if len(schedule.probes) == 1 and spare_seconds < 0:
        schedule.unaffordable |= schedule.probes
        schedule.probes = {}


def find_widest_gap(pending: Sequence[int], chosen: Sequence[int]) -> int:
    """Return the pending batch size that is furthest, by ratio, from all chosen ones; the smaller of two."""
    return max(
        sorted(pending), key=lambda batch: min((abs(math.log(batch / other)) for other in chosen), default=math.inf)
    )


def estimate_probe(batch: int, probes: dict[int, StepProbe], known_step_seconds: dict[int, float]) -> StepProbe | None:
    """Estimate the probe of a batch size from others; None without any."""
    if not probes:
        return None
    seconds = {**known_step_seconds, **{other: measured.step_seconds for other, measured in probes.items()}}
    exchange_seconds = min(measured.exchange_seconds for measured in probes.values())
    return StepProbe(
        step_seconds=estimate_step_seconds(batch, seconds, exchange_seconds),
        exchange_seconds=exchange_seconds,
        evaluation_seconds=max(measured.evaluation_seconds for measured in probes.values()),
        setup_seconds=max(measured.setup_seconds for measured in probes.values()),
    )


def estimate_step_seconds(batch: int, step_seconds: dict[int, float], exchange_seconds: float = 0.0) -> float:
    """Estimate the seconds of a step on the line through its neighbours among the measured batch sizes.

    Beyond the only one, all but the exchange is taken as proportional to the batch: an upper bound for larger batches.
    """
    known = sorted(step_seconds)
    if len(known) == 1:
        compute_seconds = step_seconds[known[0]] - exchange_seconds
        return exchange_seconds + compute_seconds * max(1.0, batch / known[0])
    low, high = next((pair for pair in pairwise(known) if batch < pair[1]), (known[-2], known[-1]))
    slope = max(0.0, (step_seconds[high] - step_seconds[low]) / (high - low))
    return max(step_seconds[low] + slope * (batch - low), min(step_seconds.values()))
