"""Record of what one training run measured. Units are in the names, or in the text beside them."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeGuard, get_args

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.noise_scale import NoiseTerms, estimate_noise_terms, noise_scale_from_terms

RECORD_SCHEMA = 2
RunStatus = Literal["running", "reached_target", "max_examples", "failed", "pruned", "cut_off"]
"""`max_examples`: ended without reaching the target; `cut_off`: stopped because the time of the sweep was up"""
LAP_MINIMUMS = dict.fromkeys(("step", "steps", "seen", "examples", "workers"), 1) | dict.fromkeys(
    ("lr", "seconds", "data_seconds", "compute_seconds", "exchange_seconds", "draws"), 0
)
"""smallest valid value of each number of a lap"""


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Stretch of steps timed as one. Times are those of the slowest worker, with the device synchronised.

    The clock stops during evaluation and noise scale measurements, so `examples / seconds` is the rate of training
    alone.
    """

    step: int
    """optimizer steps done when the lap ended"""
    steps: int
    """optimizer steps of the lap"""
    seen: int
    """examples seen when the lap ended"""
    examples: int
    """examples of the lap"""
    workers: int
    """workers that took part: fewer than requested while an elastic run is short of them"""
    lr: float
    """learning rate at the last step of the lap"""
    loss: float
    """mean training loss over the examples of the lap"""
    seconds: float
    data_seconds: float
    compute_seconds: float
    exchange_seconds: float
    """seconds waiting for the gradient exchange beyond the backward pass, including waits for slower workers"""
    local_norm: float | None = None
    """mean squared norm of a gradient over `local_batch` examples; None where it was not measured"""
    total_norm: float | None = None
    """mean squared norm of the mean gradient over `total_batch` examples"""
    local_batch: float | None = None
    total_batch: float | None = None
    draws: int = 0
    """steps at which the two norms were measured"""
    metric: float | None = None
    """metric on the validation split when the lap ended; None where it was not evaluated"""

    @classmethod
    def from_json(cls, contents: dict[str, Any]) -> "Lap":
        """Build a lap from its JSON object; refuse numbers that a lap cannot have."""
        lap = cls(**contents)
        for lap_field in fields(cls):
            value, minimum = getattr(lap, lap_field.name), LAP_MINIMUMS.get(lap_field.name, -math.inf)
            if not (is_finite_number(value) and value >= minimum) and not (value is None and lap_field.default is None):
                raise EquipoiseError("run-damaged", f"a lap has an invalid {lap_field.name}: {str(value)[:40]!r}")
        if lap.seconds == 0 or (lap.local_batch and lap.total_batch and not lap.local_batch < lap.total_batch):
            raise EquipoiseError(
                "run-damaged",
                "a lap is inconsistent: seconds must not be 0, and local_batch must be below total_batch",
            )
        return lap

    def noise_terms(self) -> NoiseTerms | None:
        """Return the two terms of the noise scale, or None where the norms were not measured."""
        if self.local_norm is None or self.total_norm is None or not self.local_batch or not self.total_batch:
            return None
        return estimate_noise_terms(self.local_norm, self.total_norm, self.local_batch, self.total_batch)


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record of one training run: its options, its laps, and how it ended."""

    config: TrainConfig
    machine: dict[str, Any]
    """hardware and software versions that the run was measured on"""
    laps: Sequence[Lap] = field(repr=False)
    status: RunStatus
    target: float
    """value of the validation metric at which training stops"""
    examples_to_target: float | None
    """examples seen when the metric crossed the target, interpolated; None if it did not"""
    test: float | None
    """metric on the test split, evaluated once at the end; None where it was not"""
    reason: str | None = None
    """reason why the run failed or was stopped; None if it ended normally"""
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
        """Status and reason as one line of text."""
        return self.status.replace("_", " ") + (f": {self.reason}" if self.reason else "")

    @property
    def seconds(self) -> float:
        """Seconds spent training, without evaluation."""
        return sum(lap.seconds for lap in self.laps)

    @property
    def examples_per_second(self) -> float:
        """Rate of training over the whole run; 0 before the first lap."""
        return sum(lap.examples for lap in self.laps) / self.seconds if self.laps else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the contents of record.json as a dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: dict[str, Any]) -> "Record":
        """Build a record from the contents of record.json; refuse contents that are invalid."""
        contents = dict(contents)
        if contents.get("schema") != RECORD_SCHEMA:
            raise EquipoiseError(
                "run-damaged",
                f"its schema is {str(contents.get('schema'))[:40]!r}, but this version reads {RECORD_SCHEMA}",
            )
        laps = [Lap.from_json(lap) for lap in require_lap_list(contents.pop("laps"))]
        record = cls(config=TrainConfig(**contents.pop("config")), laps=laps, **contents)
        for name, value in (("target", record.target), ("examples_to_target", record.examples_to_target),
                            ("test", record.test)):  # fmt: skip
            if not (is_finite_number(value) or (value is None and name != "target")):
                raise EquipoiseError("run-damaged", f"invalid {name}: {str(value)[:40]!r}")
        if record.status not in get_args(RunStatus) or not isinstance(record.reason, str | None):
            raise EquipoiseError("run-damaged", f"invalid status: {str(record.status)[:40]!r}")
        if not isinstance(record.machine, dict):
            raise EquipoiseError("run-damaged", "invalid machine: it must be an object")
        return record


def require_lap_list(value: Any) -> list[Any]:
    """Return the laps of a record if they are a list; refuse them otherwise."""
    if not isinstance(value, list):
        raise EquipoiseError("run-damaged", f"laps must be a list, got {str(value)[:40]!r}")
    return value


def is_finite_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a JSON value is a finite number; true and false are not, although Python counts them as such."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def examples_at_target(laps: Iterable[Lap], target: float) -> float | None:
    """Return the examples seen when the metric first crossed `target`, interpolated between two evaluations."""
    previous: tuple[int, float] | None = None
    for lap in laps:
        if lap.metric is None:
            continue
        if lap.metric >= target:
            if previous is None:
                return float(lap.seen)
            seen, metric = previous
            return seen + (lap.seen - seen) * (target - metric) / (lap.metric - metric)
        previous = lap.seen, lap.metric
    return None


def mean_noise_scale(laps: Iterable[Lap]) -> float | None:
    """Return the noise scale in examples over `laps`: each term is averaged over draws, then they are divided."""
    signal = variance = 0.0
    for lap in laps:
        if terms := lap.noise_terms():
            signal += terms.signal * lap.draws
            variance += terms.variance * lap.draws
    return noise_scale_from_terms(signal, variance)
