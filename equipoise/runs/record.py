"""Record of what one training run measured. Units are in the names, or in the text beside them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import Count, FiniteNumber, NonNegativeCount, NonNegativeNumber, PositiveNumber
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.runs.noise_scale import NoiseTerms, estimate_noise_terms, noise_scale_from_terms
from equipoise.runs.pipeline_span import PipelineSpan
from equipoise.runs.target import UNNAMED_METRIC, Target
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

RecordSchema = Literal[2]
RECORD_SCHEMA: RecordSchema = 2
RunStatus = Literal["running", "reached_target", "max_examples", "stopped_early", "failed", "pruned", "cut_off"]
"""`max_examples`: ended without reaching the target; `stopped_early`: the metric no longer improved (--patience);
`cut_off`: stopped because the time of the sweep was up"""


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Stretch of steps timed as one. Times are those of the slowest worker, with the device synchronised.

    The clock stops during evaluation and noise scale measurements, so `examples / seconds` is the rate of training
    alone. What a program does not report of its own loop is None.
    """

    step: Count
    """optimizer steps done when the lap ended"""
    steps: Count
    """optimizer steps of the lap"""
    seen: Count
    """examples seen when the lap ended"""
    examples: Count
    """examples of the lap"""
    workers: Count
    """workers that took part: fewer than requested while an elastic run is short of them"""
    lr: NonNegativeNumber | None = None
    """learning rate at the last step of the lap"""
    loss: FiniteNumber | None = None
    """mean training loss over the examples of the lap"""
    seconds: PositiveNumber
    """seconds of the lap, without evaluation and noise scale measurements"""
    data_seconds: NonNegativeNumber | None = None
    """seconds waiting for batches"""
    compute_seconds: NonNegativeNumber | None = None
    """seconds of the forward and backward pass and the optimizer"""
    seconds_by_worker: tuple[NonNegativeNumber, ...] = ()
    """`compute_seconds` of each worker, in the order of ranks, where the slowest takes at least 1.1 times those of the
    fastest; else none, and none of asynchronous workers, which have different work"""
    exchange_seconds: NonNegativeNumber | None = None
    """seconds waiting for the gradient exchange beyond the backward pass, including waits for slower workers"""
    encode_seconds: NonNegativeNumber | None = None
    """seconds of encoding and decoding what workers send; None without --compression"""
    peak_bytes: Count | None = None
    """largest number of bytes in the tensors of a worker, without data sets in main memory: on a GPU in each lap, on a
    CPU in the first step of a process; None where it was not measured"""
    joules: PositiveNumber | None = None
    """energy of all workers, without evaluations: of GPUs and processors as far as machines tell it, or assumed by
    --watts; None where neither is known"""
    all_reduce: tuple[AppliedAllReduce, ...] = ()
    """algorithms that summed the buckets of gradients or weights over workers, in the order of the sums; none with one
    worker, or where servers sum"""
    sent_bytes: NonNegativeCount | None = None
    """bytes of gradients or weights that leave a worker in an optimizer step, of the worker that sends most; those of
    `backend` by the closed form of a ring, or of one all-to-all where they are small"""
    rounds: NonNegativeNumber | None = None
    """messages of an optimizer step that wait for each other, over all of its sums"""
    average_interval: Count | None = None
    """optimizer steps from one average of the workers' weights to the next, over which `sent_bytes` and `rounds` are
    means; None where gradients are summed in every step"""
    averages_statistics: bool = False
    """whether running statistics of batch normalisation are averaged with the weights"""
    mean_staleness: NonNegativeNumber | None = None
    """mean number of updates between the weights that a worker computed a gradient at and the update with it; None
    where workers exchange at the same time"""
    max_staleness: NonNegativeCount | None = None
    """largest such number of the lap"""
    local_norm: FiniteNumber | None = None
    """mean squared norm of a gradient over `local_batch` examples; None where it was not measured"""
    total_norm: FiniteNumber | None = None
    """mean squared norm of the mean gradient over `total_batch` examples"""
    local_batch: FiniteNumber | None = None
    """mean number of examples behind a gradient of `local_norm`"""
    total_batch: Count | None = None
    """examples behind a gradient of `total_norm`"""
    draws: NonNegativeCount = 0
    """steps at which the two norms were measured"""
    pipeline_spans: tuple[PipelineSpan, ...] = ()
    """passes and waits of the stages of a pipeline in the last step of one of the first laps; none in others"""
    metric: FiniteNumber | None = None
    """metric on the validation split when the lap ended; None where it was not evaluated"""

    def __post_init__(self) -> None:
        if self.local_batch and self.total_batch and not self.local_batch < self.total_batch:
            raise ValueError(f"local_batch {self.local_batch} is not below total_batch {self.total_batch}")

    @property
    def global_batch(self) -> int:
        """Examples in each of its steps."""
        return self.examples // self.steps

    @classmethod
    def from_json(cls, contents: object) -> "Lap":
        """Decode a lap; refuse numbers that a lap cannot have."""
        return decode_json_value(contents, cls, code="run-damaged", problem="a lap is damaged")

    def noise_terms(self) -> NoiseTerms | None:
        """Return the two terms of the noise scale, or None where the norms were not measured."""
        if self.local_norm is None or self.total_norm is None or not self.local_batch or not self.total_batch:
            return None
        return estimate_noise_terms(self.local_norm, self.total_norm, self.local_batch, self.total_batch)


@dataclass(frozen=True, kw_only=True)
class ClassCount:
    """Test images of one class, and how many of them the final model got right."""

    name: str
    """name of the class"""
    images: Count
    """test images of the class"""
    correct: NonNegativeCount
    """those that the final model got right"""

    @property
    def accuracy(self) -> float:
        """Share of the images that are right."""
        return self.correct / self.images


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record of one training run: its options, its laps, and how it ended."""

    config: TrainConfig
    """options of the run"""
    machine: HardwareFacts
    """hardware and software versions that the run was measured on"""
    laps: Sequence[Lap] = field(repr=False)
    """laps in chronological order"""
    status: RunStatus
    """how the run ended: `reached_target`; `max_examples` without reaching the target; `stopped_early` because the
    metric no longer improved (--patience); `failed`; `pruned` as a trial that could no longer matter; `cut_off` as a
    trial of a sweep whose time was up; `running` if it has not ended"""
    target: FiniteNumber | None
    """value of the validation metric at which training stops; None if it ends at its number of examples"""
    examples_to_target: FiniteNumber | None
    """examples seen when the metric crossed the target, interpolated; None if it did not"""
    test: FiniteNumber | None
    """metric on the test split, evaluated once at the end; None where it was not"""
    test_classes: Sequence[ClassCount] | None = None
    """counts of each class that the test split shows; None where the metric is not the accuracy"""
    lower_is_better: bool = False
    """whether a lower metric is a better one, as with a loss"""
    metric_name: str = UNNAMED_METRIC
    """name of the metric for people, such as mAP"""
    unit: str = "examples"
    """unit in which people count examples of this kind, such as tokens"""
    units_per_example: Count = 1
    """units in an example"""
    reason: str | None = None
    """reason why the run failed or was stopped; None if it ended normally"""
    schema: RecordSchema = RECORD_SCHEMA
    """version of the format"""

    @property
    def goal(self) -> Target:
        """Target with its direction."""
        return Target(value=self.target, lower_is_better=self.lower_is_better, metric_name=self.metric_name)

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

    @property
    def joules(self) -> float | None:
        """Energy of training, without evaluations; None where it is not known of all laps."""
        joules = [lap.joules for lap in self.laps if lap.joules is not None]
        return sum(joules) if joules and len(joules) == len(self.laps) else None

    @property
    def peak_bytes(self) -> int | None:
        """Largest number of bytes in the tensors of a worker; None where it was not measured."""
        return max((lap.peak_bytes for lap in self.laps if lap.peak_bytes is not None), default=None)

    def to_json(self) -> JsonObject:
        """Return the contents of record.json."""
        return asdict(self) | {"machine": self.machine.to_json()}

    @classmethod
    def from_json(cls, contents: object) -> "Record":
        """Decode the contents of record.json; refuse contents that are invalid or of another schema."""
        if not isinstance(contents, dict) or contents.get("schema") != RECORD_SCHEMA:
            raise EquipoiseError("run-damaged", f"it is not a record of schema {RECORD_SCHEMA}")
        return decode_json_value(contents, cls, code="run-damaged", problem="it is damaged")


def examples_at_target(laps: Iterable[Lap], target: Target) -> float | None:
    """Return the examples seen when the metric first reached `target`, interpolated between two evaluations."""
    previous: tuple[int, float] | None = None
    for lap in laps:
        if lap.metric is None:
            continue
        if target.value is not None and target.is_reached(lap.metric):
            if previous is None:
                return float(lap.seen)
            seen, metric = previous
            return seen + (lap.seen - seen) * (target.value - metric) / (lap.metric - metric)
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
