"""What one trial measured. Units are in the names, or said beside them."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeGuard, get_args

from equipoise.config import TrainConfig
from equipoise.runs.noise_scale import NoiseTerms, estimate_noise_terms, noise_scale_from_terms

RECORD_SCHEMA = 2
RunStatus = Literal["running", "reached_target", "max_examples", "failed", "pruned", "cut_off"]
"""`max_examples` ended without reaching the target; `cut_off` was stopped because the sweep's time was up"""
LAP_MINIMUMS = dict.fromkeys(("step", "steps", "seen", "examples", "workers"), 1) | dict.fromkeys(
    ("lr", "seconds", "data_seconds", "compute_seconds", "exchange_seconds", "draws"), 0
)
"""of a lap's numbers"""


@dataclass(frozen=True, kw_only=True)
class Lap:
    """A stretch of steps timed as one. Times are the slowest worker's, with the device synchronised.

    Evaluation and noise probes stop the clock, so `examples / seconds` is the rate of training alone.
    """

    step: int
    """optimizer steps done when the lap ended"""
    steps: int
    seen: int
    """examples seen when the lap ended"""
    examples: int
    workers: int
    """that took part: fewer than the trial asked for while an elastic run is short of them"""
    lr: float
    """at the lap's last step"""
    loss: float
    """mean over the lap's examples"""
    seconds: float
    data_seconds: float
    compute_seconds: float
    exchange_seconds: float
    """waited for gradients that backward did not hide, slower workers included"""
    local_norm: float | None = None
    """mean squared norm of a gradient over `local_batch` examples; None where none was taken"""
    total_norm: float | None = None
    """mean squared norm of their mean over `total_batch` examples"""
    local_batch: float | None = None
    total_batch: float | None = None
    draws: int = 0
    """steps on which the two norms were taken"""
    metric: float | None = None
    """of the validation split when the lap ended; None where it was not evaluated"""

    @classmethod
    def from_json(cls, contents: dict[str, Any]) -> "Lap":
        """The lap that a file tells of; refuses numbers that no lap has."""
        lap = cls(**contents)
        for part in fields(cls):
            value, low = getattr(lap, part.name), LAP_MINIMUMS.get(part.name, -math.inf)
            if not (is_finite_number(value) and value >= low) and not (value is None and part.default is None):
                raise ValueError(f"the {part.name} of a lap is {str(value)[:40]!r}")
        if lap.seconds == 0 or (lap.local_batch and lap.total_batch and not lap.local_batch < lap.total_batch):
            raise ValueError("a lap's numbers do not fit each other")
        return lap

    def noise_terms(self) -> NoiseTerms | None:
        """The noise scale's two terms, or None where they were not taken."""
        if self.local_norm is None or self.total_norm is None or not self.local_batch or not self.total_batch:
            return None
        return estimate_noise_terms(self.local_norm, self.total_norm, self.local_batch, self.total_batch)


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial, from what was asked to how it ended."""

    config: TrainConfig
    machine: dict[str, Any]
    laps: Sequence[Lap] = field(repr=False)
    status: RunStatus
    target: float
    examples_to_target: float | None
    """examples seen when the metric crossed the target, interpolated; None if it did not"""
    test: float | None
    """metric on the test split, taken once, at the end"""
    reason: str | None = None
    """why the run failed or was stopped; None if it ended by itself"""
    schema: int = RECORD_SCHEMA

    @property
    def reached(self) -> bool:
        """Whether the metric crossed the target."""
        return self.status == "reached_target"

    @property
    def failed(self) -> bool:
        """Whether the run ended in a failure."""
        return self.status == "failed"

    @property
    def outcome(self) -> str:
        """Status and reason as text."""
        return self.status.replace("_", " ") + (f": {self.reason}" if self.reason else "")

    @property
    def seconds(self) -> float:
        """Time spent training."""
        return sum(lap.seconds for lap in self.laps)

    @property
    def examples_per_second(self) -> float:
        """Rate of training over the whole run; 0 where nothing was trained."""
        return sum(lap.examples for lap in self.laps) / self.seconds if self.laps else 0.0

    def to_json(self) -> dict[str, Any]:
        """The contents of record.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: dict[str, Any]) -> "Record":
        """The record that `to_json` wrote."""
        contents = dict(contents)
        if contents.get("schema") != RECORD_SCHEMA:
            raise ValueError(
                f"it has schema {str(contents.get('schema'))[:40]!r}, and this version reads {RECORD_SCHEMA}"
            )
        laps = [Lap.from_json(lap) for lap in require_lap_list(contents.pop("laps"))]
        record = cls(config=TrainConfig(**contents.pop("config")), laps=laps, **contents)
        for name, value in (("target", record.target), ("examples_to_target", record.examples_to_target),
                            ("test", record.test)):  # fmt: skip
            if not (is_finite_number(value) or (value is None and name != "target")):
                raise ValueError(f"its {name} is {str(value)[:40]!r}")
        if record.status not in get_args(RunStatus) or not isinstance(record.reason, str | None):
            raise ValueError(f"its status is {str(record.status)[:40]!r}")
        if not isinstance(record.machine, dict):
            raise ValueError("it does not say on what machine it was made")
        return record


def require_lap_list(value: Any) -> list[Any]:
    """It, if it is a list."""
    if not isinstance(value, list):
        raise ValueError(f"its laps are {str(value)[:40]!r}")
    return value


def is_finite_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is one that arithmetic takes; JSON's true and false are numbers to Python."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def examples_at_target(laps: Iterable[Lap], target: float) -> float | None:
    """Examples seen when the metric first crossed `target`, on the line between two evaluations."""
    before: tuple[int, float] | None = None
    for lap in laps:
        if lap.metric is None:
            continue
        if lap.metric >= target:
            if before is None:
                return float(lap.seen)
            seen, metric = before
            return seen + (lap.seen - seen) * (target - metric) / (lap.metric - metric)
        before = lap.seen, lap.metric
    return None


def mean_noise_scale(laps: Iterable[Lap]) -> float | None:
    """The noise scale in examples over `laps`: terms averaged apart by draws, divided last."""
    signal = variance = 0.0
    for lap in laps:
        if terms := lap.noise_terms():
            signal += terms.signal * lap.draws
            variance += terms.variance * lap.draws
    return noise_scale_from_terms(signal, variance)
