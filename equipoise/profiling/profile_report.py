"""What a profile of a run holds: parts of a step, work by layer, synchronisation points, losses and proposals."""

from dataclasses import asdict, dataclass, field
from typing import Literal

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import Count, NonNegativeCount, NonNegativeNumber, PositiveNumber
from equipoise.planning.exchanges.link_report import LinkTiming
from equipoise.planning.interval import IntervalEstimate
from equipoise.profiling.memory.step_memory import StepMemory
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

PROFILE_FILE, TRACE_FILE = "profile.json", "trace-worker-0.json.gz"
ProfileSchema = Literal[1]
PROFILE_SCHEMA: ProfileSchema = 1
LossKind = Literal["data", "sync", "exchange", "imbalance", "layer", "optimizer", "other"]
Verdict = Literal["confirmed", "refuted"]


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """Mean seconds of a step on one worker; the parts add up to `seconds`, except for the hidden exchange."""

    seconds: PositiveNumber
    """seconds of a step"""
    data: NonNegativeNumber
    """seconds waiting for batches"""
    forward: NonNegativeNumber
    """seconds of the model and the loss, without waits at synchronisation points"""
    backward: NonNegativeNumber
    """seconds of the backward pass, without waits at synchronisation points"""
    optimizer: NonNegativeNumber
    """seconds of the optimizer, and of what else lies around both passes"""
    exchange: NonNegativeNumber
    """seconds waiting for the exchange of gradients or weights"""
    sync: NonNegativeNumber
    """seconds waiting at synchronisation points"""
    other: NonNegativeNumber
    """seconds in none of these parts"""
    hidden_exchange: NonNegativeNumber = 0.0
    """seconds of the exchange that the backward pass hides, in the traced steps"""
    exchange_under_data: NonNegativeNumber = 0.0
    """seconds of the exchange that waiting for batches hides, in the traced steps"""


@dataclass(frozen=True, kw_only=True)
class MeasuredSteps:
    """Seconds of a step of the slowest worker, without marks, with them, and in the trace."""

    seconds: PositiveNumber
    """median seconds of a step without any marks"""
    pace_sd: NonNegativeNumber
    """standard deviation of the log of those seconds between blocks of steps"""
    marked_seconds: PositiveNumber
    """median seconds of a step with the marks between its parts, in turns with those without"""
    traced_seconds: PositiveNumber
    """mean seconds of a traced step"""
    traced_steps: Count
    """number of traced steps"""
    parts: tuple[StepParts, ...]
    """parts of a step on each worker, in the order of ranks"""


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Work of one layer: what it computes for an example, and how long it takes in a step of the first worker."""

    name: str
    """name of the module in the model; empty for what lies outside of all modules, such as the loss"""
    kind: str
    """class of the module"""
    forward_flop: NonNegativeNumber
    """operations of the forward pass of an example, in products of matrices and convolutions"""
    backward_flop: NonNegativeNumber
    """operations of the backward pass of an example"""
    parameter_bytes: NonNegativeCount
    """bytes of the layer's own parameters"""
    input_bytes: NonNegativeNumber
    """bytes of its inputs for an example"""
    output_bytes: NonNegativeNumber
    """bytes of its outputs for an example"""
    forward_seconds: NonNegativeNumber | None = None
    """seconds of its forward pass in a step; None where it was not traced"""
    backward_seconds: NonNegativeNumber | None = None
    """seconds of its backward pass in a step"""

    @property
    def seconds(self) -> float | None:
        """Seconds of both passes in a step; None where they were not traced."""
        if self.forward_seconds is None:
            return None
        return self.forward_seconds + (self.backward_seconds or 0.0)

    def step_flop(self, examples: int) -> float:
        """Return the operations of both passes over so many examples."""
        return (self.forward_flop + self.backward_flop) * examples

    def moved_bytes(self, examples: int) -> float:
        """Return the bytes that both passes over so many examples move at least.

        Forward reads inputs and weights and writes outputs; backward reads all three (the outputs as gradients) and
        writes the gradients of inputs and weights.
        """
        return (3 * self.input_bytes + 2 * self.output_bytes) * examples + 3 * self.parameter_bytes


@dataclass(frozen=True, kw_only=True)
class MachineLimits:
    """Rates that one worker reaches at best, measured on all workers at the same time."""

    flop_per_second: PositiveNumber
    """operations per second of a product of two square matrices in the precision of the run"""
    bytes_per_second: PositiveNumber
    """bytes read and written per second by a copy in memory"""

    def bound_flop_rate(self, flop: float, moved_bytes: float) -> float:
        """Return the highest rate of operations that these limits allow for work that moves so many bytes."""
        return min(self.flop_per_second, self.bytes_per_second * flop / moved_bytes)


@dataclass(frozen=True, kw_only=True)
class SyncPoint:
    """Line of code at which a worker waits for other workers, or for its device, in every step."""

    operation: str
    """what it waits for, such as all_reduce or item"""
    file: str
    """file of the line"""
    line: Count
    """number of the line"""
    code: str
    """text of the line"""
    calls: NonNegativeNumber
    """calls in a step"""
    seconds: NonNegativeNumber
    """seconds of a step that the calls take on the worker that waits least, calls in a row added up: the others wait
    longer because this one comes late, which they would do elsewhere"""
    longest_seconds: NonNegativeNumber
    """seconds of a step that the calls take on the worker that waits longest"""

    @property
    def place(self) -> str:
        """File without its folders, and line."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class StepLoss:
    """Part of a step's time by its cause, and how much faster steps would be without it."""

    kind: LossKind
    """what kind of time it is: `imbalance` waits for a slower worker"""
    name: str
    """what takes the time, in words, with its line of code or layer"""
    seconds: NonNegativeNumber
    """seconds of a step"""
    gain: IntervalEstimate
    """examples per second without it over those with it"""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Change that may make steps faster, its predicted gain, and what trying it showed."""

    name: str
    """short name, unique in a profile"""
    action: str
    """what to do: an option of the command, or a change outside of it"""
    options: dict[str, int | str | bool] = field(default_factory=dict)
    """options of the run that differ; empty where no option does it"""
    gain: IntervalEstimate
    """predicted examples per second over those of the profiled run, with an interval of 80 %"""
    reason: str
    """where the prediction comes from"""
    changes_learning: bool = False
    """whether the model learns otherwise too, so that examples per second say little about the time to a target"""
    tried_gain: NonNegativeNumber | None = None
    """measured gain; None where it was not tried"""

    @property
    def verdict(self) -> Verdict | None:
        """Return whether the measured gain is inside the predicted interval; None where it was not tried."""
        if self.tried_gain is None:
            return None
        return "confirmed" if self.gain.includes(self.tried_gain) else "refuted"


@dataclass(frozen=True, kw_only=True)
class PassRatio:
    """Seconds of both passes with another option over those without, on each worker by itself."""

    ratio: PositiveNumber
    """seconds with the option over those without"""
    log_sd: NonNegativeNumber
    """standard deviation of the log of the ratio between turns"""


@dataclass(frozen=True, kw_only=True)
class ShortTimings:
    """Timings beside those of the run's own steps, from which gains are predicted."""

    batch_seconds: dict[int, float] = field(default_factory=dict)
    """seconds of a step by batch size per worker, in turns"""
    pass_ratios: dict[str, PassRatio] = field(default_factory=dict)
    """by name of the proposal"""
    sum_seconds: dict[int, float] = field(default_factory=dict)
    """seconds of an all-reduce alone, by its bytes"""
    pass_seconds: NonNegativeNumber | None = None
    """seconds of both passes of a step alone, again and again, on the slowest worker: shorter than where a worker waits
    before each, which leaves caches cold"""
    gradient_bytes: NonNegativeCount = 0
    """bytes that each worker exchanges in a step"""
    is_read_ahead: bool = False
    """whether other processes read examples, as many as --threads says"""


@dataclass(frozen=True, kw_only=True)
class TimelineSpan:
    """Stretch of time in the traced steps that a page draws."""

    worker: NonNegativeCount
    """rank of the worker"""
    part: str
    """data, forward, backward, exchange or other"""
    start: NonNegativeNumber
    """seconds since the first of these steps began on the worker"""
    seconds: NonNegativeNumber
    """its seconds"""


@dataclass(frozen=True, kw_only=True)
class ProfileReport:
    """Profile of the steps of a run."""

    config: TrainConfig
    """options of the run"""
    machine: HardwareFacts
    """hardware and software versions of the first worker"""
    nodes: Count
    """nodes that the workers were on"""
    steps: MeasuredSteps
    """seconds of a step and of its parts"""
    layers: tuple[LayerWork, ...]
    """work by layer, in the order of the model"""
    limits: MachineLimits | None
    """rates that a worker reaches at best; None of an observed loop on a GPU without free memory"""
    sync_points: tuple[SyncPoint, ...]
    """lines of code at which workers wait in every step, the longest first"""
    timings: ShortTimings
    """timings that the predictions come from"""
    timeline: tuple[TimelineSpan, ...] = ()
    """parts of two steps on each worker"""
    memory: StepMemory | None = None
    """memory of a worker over its batch; None of an observed loop"""
    links: tuple[LinkTiming, ...] = ()
    """links between the workers; empty of one worker, and of an observed loop"""
    losses: tuple[StepLoss, ...] = ()
    """where the time of a step goes: what is lost first, then the work, each with the largest first"""
    proposals: tuple[Proposal, ...] = ()
    """proposals, that of the largest predicted gain first"""
    schema: ProfileSchema = PROFILE_SCHEMA
    """version of the format"""

    def to_json(self) -> JsonObject:
        """Return the contents of profile.json."""
        return asdict(self) | {"machine": self.machine.to_json()}

    @classmethod
    def from_json(cls, contents: object) -> "ProfileReport":
        """Decode the contents of profile.json; refuse contents that are invalid or of another schema."""
        if not isinstance(contents, dict) or contents.get("schema") != PROFILE_SCHEMA:
            raise EquipoiseError("file-damaged", f"it is not a profile of schema {PROFILE_SCHEMA}")
        return decode_json_value(contents, cls, code="file-damaged", problem="the profile is damaged")
