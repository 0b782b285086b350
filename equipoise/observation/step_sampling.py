"""Which steps of a loop have their parts timed, and what these say of the other steps.

Where each step starts and ends is known of all steps, and so is the wait for data between them. The inside of a step,
from its first forward pass to the step of the optimizer, is one span in most steps. In one of `parts_every` steps it is
timed by part: computing, exchange, and waiting for data between micro-batches. The seconds of the untimed insides are
divided among the parts as those of the timed ones were.

Steps are timed in blocks, since to begin and to end it takes time: one block in each stretch of `parts_every` blocks.
Its place in the stretch moves by the golden ratio, whose multiples are spread evenly over any regular subset of the
stretches: whatever the loop repeats at a fixed number of steps is met as often as it occurs. The first blocks have the
start-up in them, so all of their steps are timed, and stand for themselves alone.

What a measurement costs is nearly the same for short and long steps. So short steps are measured less often: laps last
half a second, and parts and norms take a small share of the time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from equipoise.errors import EquipoiseError

LAP_STEPS = 100  # in the first lap; a lap also ends where a metric is reported
MIN_LAP_SECONDS = 0.5  # of later laps, unless they have MAX_LAP_STEPS
MAX_LAP_STEPS = 1000
MAX_LAP_SHARE = 0.001  # of the time of training, to end laps: workers exchange what they have measured
PARTS_EVERY = 5  # steps of which one is timed by part, if that does not take more than MAX_PARTS_SHARE
MAX_PARTS_EVERY = 40
MAX_PARTS_SHARE = 0.001  # of the time of training, to time parts of steps
TIMED_STEP_SECONDS = 25e-6  # that timing a step by part takes; see docs/log/2026-11-28-cost-of-observing.md
TIMED_EXCHANGE_SECONDS = 80e-6  # more with several workers
BLOCK_STEPS = 10  # that are timed in a row
NOISE_SCALE_EVERY = 10  # steps between two measurements of the noise scale, each of which reads all gradients twice
MAX_TRACED_STEPS = 1000
MAX_NORM_SHARE = 0.002  # of the time of training, for measurements of the noise scale, unless their interval is given

STEP_PARTS = "data", "compute", "exchange"
OWN_SPANS = {part: part for part in STEP_PARTS}
SAMPLED_SPANS = {part: f"sampled {part}" for part in STEP_PARTS}
UNTIMED_SPANS = dict.fromkeys(STEP_PARTS, "untimed")
GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class MeasurementCadence:
    """How often a loop is measured, in steps of the optimizer."""

    lap_steps: int | None = None
    """steps that are timed as one; None for a hundred, or more where they take less than half a second"""
    parts_every: int | None = None
    """steps of which one has its parts timed, 1 for all; None for five, or more where steps are short"""
    noise_scale_every: int | None = None
    """steps between measurements of the noise scale, 0 for never; None for ten, or more where measuring takes long"""
    profile_steps: int = 0
    """steps of the trace of a profile; 0 for no profile"""

    def __post_init__(self) -> None:
        if self.profile_steps and not 2 <= self.profile_steps <= MAX_TRACED_STEPS:
            raise EquipoiseError(
                "option-range",
                f"profile_steps must be 0, or from 2 to {MAX_TRACED_STEPS:,}, got {self.profile_steps}",
            )
        for name in ("lap_steps", "parts_every"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise EquipoiseError("option-range", f"{name} must be at least 1, got {value}")

    def choose_lap_steps(self, step_seconds: float | None = None, end_seconds: float = 0.0) -> int:
        """Return the steps of a lap, from the seconds of a step and of ending a lap; at first neither is known."""
        if self.lap_steps is not None or step_seconds is None:
            return self.lap_steps or LAP_STEPS
        seconds = max(MIN_LAP_SECONDS, end_seconds / MAX_LAP_SHARE)
        return min(max(LAP_STEPS, math.ceil(seconds / max(step_seconds, 1e-9))), MAX_LAP_STEPS)

    def choose_parts_every(self, step_seconds: float | None = None, has_exchange: bool = False) -> int:
        """Return of how many steps one has its parts timed, from the seconds of a step, if they are known.

        It doubles rather than grows, so that it stays the same while the seconds of a step vary a little.
        """
        every = self.parts_every or PARTS_EVERY
        if self.parts_every is None and step_seconds is not None:
            timing_seconds = TIMED_STEP_SECONDS + (TIMED_EXCHANGE_SECONDS if has_exchange else 0.0)
            while every < MAX_PARTS_EVERY and timing_seconds / every > MAX_PARTS_SHARE * step_seconds:
                every *= 2
        return every

    @property
    def first_norm_interval(self) -> int:
        """Steps between measurements of the noise scale as long as it is not known how long they take."""
        return NOISE_SCALE_EVERY if self.noise_scale_every is None else self.noise_scale_every

    def choose_norm_interval(self, norm_seconds: float, step_seconds: float) -> int:
        """Return the steps between measurements of the noise scale, from the seconds of one and those of a step.

        Each lap has a measurement: one that was held up once must not end them.
        """
        if self.noise_scale_every is not None:
            return self.noise_scale_every
        affordable = math.ceil(norm_seconds / (MAX_NORM_SHARE * step_seconds))
        return max(NOISE_SCALE_EVERY, min(affordable, self.choose_lap_steps(step_seconds)))


class StepSampling:
    """Choice of the steps whose parts are timed, and the estimate of the parts of all steps."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.shares = dict.fromkeys(STEP_PARTS, 0.0) | {"compute": 1.0}
        """parts of the inside of a step, from the latest steps that were timed for the others"""

    def choose_spans(self, step: int) -> Mapping[str, str]:
        """Return the names under which the parts inside of a step are recorded."""
        block = step // BLOCK_STEPS
        if block < PARTS_EVERY or self.every == 1:
            return OWN_SPANS
        return SAMPLED_SPANS if block == self.find_timed_block(block) else UNTIMED_SPANS

    def find_timed_block(self, block: int) -> int:
        """Return the block of steps that is timed in the stretch of a block."""
        stretch = block // self.every
        return stretch * self.every + int((stretch - 1) * GOLDEN_RATIO % 1 * self.every)

    def count_untimed_steps(self, step: int) -> int:
        """Return how many steps from an untimed one are surely untimed too, itself included."""
        block = step // BLOCK_STEPS
        timed_block = self.find_timed_block(block)
        end = timed_block if block < timed_block else (block // self.every + 1) * self.every
        return end * BLOCK_STEPS - step

    def sum_parts(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of all steps by part that they have, from the seconds by name of span."""
        sampled = {part: seconds.get(name, 0.0) for part, name in SAMPLED_SPANS.items()}
        if total := sum(sampled.values()):
            self.shares = {part: value / total for part, value in sampled.items()}
        untimed = seconds.get("untimed", 0.0)
        sums = {part: seconds.get(part, 0.0) + sampled[part] + self.shares[part] * untimed for part in STEP_PARTS}
        return {part: value for part, value in sums.items() if value}
