"""What a plan says of each way of exchange: whether it pays here, and on which networks that changes."""

from dataclasses import dataclass
from typing import Literal

from equipoise.number_bounds import Count, LearningRate, NonNegativeCount, NonNegativeNumber, PositiveNumber
from equipoise.planning.interval import IntervalEstimate

VerdictName = Literal["use", "no gain", "slower", "does not fit", "unknown"]
"""what to do with a way of exchange

`no gain`: not faster enough to be worth it, `slower`: measured and slower, `unknown`: what it needs was not measured.
"""


@dataclass(frozen=True, kw_only=True)
class ExchangeVerdict:
    """Way of exchange at its best setting, against the best plan with exact sums; None where nothing tells a value."""

    exchange: str
    """way of exchange as `sync/compression/all-reduce/servers`"""
    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    lr: LearningRate | None = None
    """best learning rate that was tried"""
    momentum: NonNegativeNumber | None = None
    """best momentum that was tried; None for that of exact sums"""
    step_seconds: PositiveNumber | None = None
    """seconds of an optimizer step, averaged over the steps from one exchange to the next"""
    sent_bytes: NonNegativeNumber | None = None
    """bytes that leave the worker that sends most, in an average step"""
    encode_seconds: NonNegativeNumber | None = None
    """seconds of encoding and decoding in an average step"""
    examples_ratio: IntervalEstimate | None = None
    """examples to the target over those of exact sums at the same global batch"""
    seconds: IntervalEstimate | None = None
    """seconds to the target, as an average over seeds"""
    max_speedup: PositiveNumber | None = None
    """how many times sooner it could be than the best exact plan, if it needed no more examples"""
    speedup: IntervalEstimate | None = None
    """how many times sooner it reaches the target than the best exact plan"""
    peak_bytes: NonNegativeNumber | None = None
    """most memory that a worker needs"""
    verdict: VerdictName
    """what to do with it"""
    why: str
    """reason for the verdict, in one sentence"""
    measured: bool = False
    """true if its steps were timed and its examples were counted at this setting"""

    def __post_init__(self) -> None:
        if self.nodes > self.workers:
            raise ValueError(f"{self.workers} workers cannot run on {self.nodes} nodes")
        if self.verdict == "use" and self.speedup is None:
            raise ValueError(f"{self.exchange or 'an exchange'} is used without a speed-up")

    @property
    def global_batch(self) -> int:
        """Examples per optimizer step of all workers."""
        return self.workers * self.batch


@dataclass(frozen=True, kw_only=True)
class SwitchesAt:
    """Networks at which the answer changes between exact sums and another way of exchange."""

    bits_per_second: PositiveNumber | None = None
    """rate of the slowest links at which exact sums start or stop to be the best, with the measured delay; the nearest
    one on a better network if another way is the best here, else on a worse one; None if no rate changes it"""
    delay_seconds: NonNegativeNumber | None = None
    """the same of the seconds a message, with the measured rate; None if no delay of the map changes it"""


@dataclass(frozen=True, kw_only=True)
class ExchangeMap:
    """Best way of exchange over the rate and the delay of the slowest links; matrices have one row for each delay."""

    bits_per_second: tuple[PositiveNumber, ...]
    """rates of the slowest links, rising"""
    delay_seconds: tuple[NonNegativeNumber, ...]
    """seconds a message on these links, rising"""
    options: tuple[str, ...]
    """ways of exchange that were compared; the first is empty, for exact sums in every step"""
    best: tuple[tuple[NonNegativeCount, ...], ...]
    """position in `options` of the best way of exchange"""
    exact_seconds: tuple[tuple[PositiveNumber, ...], ...]
    """seconds to the target of the best plan with exact sums"""
    speedup: tuple[tuple[PositiveNumber, ...], ...]
    """how many times sooner the best way of exchange is; 1 where exact sums are the best"""
    own_bits_per_second: PositiveNumber | None = None
    """measured rate of the slowest links"""
    own_delay_seconds: NonNegativeNumber | None = None
    """measured seconds a message on these links"""

    def __post_init__(self) -> None:
        shape = [len(self.bits_per_second)] * len(self.delay_seconds)
        for name in ("best", "exact_seconds", "speedup"):
            if [len(row) for row in getattr(self, name)] != shape:
                raise ValueError(f"`{name}` does not have a row for each delay with a value for each rate")
        if any(index >= len(self.options) for row in self.best for index in row):
            raise ValueError("`best` names an option that is not in `options`")
