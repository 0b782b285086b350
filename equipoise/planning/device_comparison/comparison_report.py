"""What a comparison of one worker with several holds: seconds of a step by batch, and from which batch on they pay."""

from dataclasses import asdict, dataclass
from typing import Literal

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import Count, NonNegativeCount, NonNegativeNumber, PositiveNumber
from equipoise.planning.interval import IntervalEstimate
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

COMPARISON_FILE = "comparison.json"
ComparisonSchema = Literal[1]
COMPARISON_SCHEMA: ComparisonSchema = 1


@dataclass(frozen=True, kw_only=True)
class SharedSteps:
    """Median seconds of a step of several workers that share a batch, each with an equal part of it."""

    seconds: PositiveNumber
    """seconds of a step"""
    exchange_seconds: NonNegativeNumber
    """seconds of it spent on the exchange beyond the backward pass, on the worker that waits least"""

    @property
    def exchange_share(self) -> float:
        """Share of a step that the exchange takes."""
        return min(1.0, self.exchange_seconds / self.seconds)


@dataclass(frozen=True, kw_only=True)
class BatchTimings:
    """Seconds of a step at one batch, which one worker takes alone or several share."""

    batch: Count
    """examples of a step, of all workers together"""
    one_seconds: PositiveNumber
    """median seconds of a step of one worker"""
    part_seconds: PositiveNumber
    """median seconds of a step of one worker with the part of the batch that each of several has"""
    beside_seconds: PositiveNumber
    """the same while the other workers take such steps of their own, without any exchange: longer where they share a
    machine"""
    predicted: SharedSteps
    """steps of several workers, predicted from steps without an exchange and the exchange by itself"""
    measured: SharedSteps | None = None
    """measured steps of several workers; None where they were not measured"""

    @property
    def slowdown(self) -> float:
        """Seconds of a worker's part of a step beside the others over those of the same alone."""
        return self.beside_seconds / self.part_seconds

    @property
    def shared_steps(self) -> SharedSteps:
        """Measured steps of several workers, or the predicted ones where they were not measured."""
        return self.measured or self.predicted


@dataclass(frozen=True, kw_only=True)
class CrossingBatch:
    """Batch from which on several workers take less time than one."""

    outcome: Literal["crosses", "always", "never"]
    """`always`: they take less at every batch compared; `never`: at none, or not at the largest"""
    batch: IntervalEstimate | None = None
    """that batch, between two that were compared; None unless it `crosses`"""
    beyond: PositiveNumber | None = None
    """where it `never` does: the batch at which lines through the two largest batches cross; None if they do not"""


@dataclass(frozen=True, kw_only=True)
class DeviceComparison:
    """Steps of one worker and of several that share its batch, on one cluster."""

    config: TrainConfig
    """options of the run on one worker"""
    machine: HardwareFacts
    """hardware and software versions of the first worker"""
    nodes: Count
    """nodes that the workers were on"""
    workers: Count
    """workers that one is compared with"""
    train_examples: Count
    """examples of an epoch"""
    gradient_bytes: NonNegativeCount
    """bytes of gradients that a worker exchanges in a step"""
    flop_per_example: NonNegativeNumber
    """operations of both passes over an example, in products of matrices and convolutions"""
    exchange_seconds: NonNegativeNumber
    """median seconds of an exchange of all gradients by itself"""
    rows: tuple[BatchTimings, ...]
    """seconds by batch, the smallest first"""
    predicted_crossing: CrossingBatch
    """from which batch on several workers pay, by the predicted steps"""
    measured_crossing: CrossingBatch | None = None
    """the same by the measured steps; None where they were not measured"""
    schema: ComparisonSchema = COMPARISON_SCHEMA
    """version of the format"""

    @property
    def crossing(self) -> CrossingBatch:
        """Measured crossing, or the predicted one where nothing was measured."""
        return self.measured_crossing or self.predicted_crossing

    @property
    def flop_per_byte(self) -> float:
        """Operations over each byte that a step exchanges, for each example of a worker's part of the batch."""
        return self.flop_per_example / self.gradient_bytes if self.gradient_bytes else 0.0

    def epoch_seconds(self, row: BatchTimings, seconds: float) -> float:
        """Return the seconds of an epoch of steps that take so long."""
        return self.train_examples / row.batch * seconds

    def to_json(self) -> JsonObject:
        """Return the contents of comparison.json."""
        return asdict(self) | {"machine": self.machine.to_json()}

    @classmethod
    def from_json(cls, contents: object) -> "DeviceComparison":
        """Decode the contents of comparison.json; refuse contents that are invalid or of another schema."""
        if not isinstance(contents, dict) or contents.get("schema") != COMPARISON_SCHEMA:
            raise EquipoiseError("file-damaged", f"it is not a comparison of schema {COMPARISON_SCHEMA}")
        return decode_json_value(contents, cls, code="file-damaged", problem="the comparison is damaged")
