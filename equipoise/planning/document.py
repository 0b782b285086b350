"""Contents of plan.json as typed values: the fits of what was measured, their predictions, and the plan."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, Self, TypeGuard

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import (
    Count,
    FiniteNumber,
    LearningRate,
    NonNegativeCount,
    NonNegativeNumber,
    PositiveNumber,
)
from equipoise.planning.confirmation import ConfirmationResult, PlanStatus, find_plan_status
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, ExchangeVerdict, SwitchesAt
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.parameter_servers.worker_speeds import WorkerSpeeds
from equipoise.planning.sections.examples_types import ExamplesSection
from equipoise.planning.sections.step_time_types import StepTimeSection
from equipoise.planning.targets.batch_schedule import BatchSchedule
from equipoise.planning.training_setup import TrainingSetup, rename_old_setup_keys
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

PLAN_FILE = "plan.json"
PLAN_SCHEMA = 1
PLAN_KEYS = ("plan", "front", "warnings")
"""keys that every plan.json has, by which it is told from other JSON"""
WRITE_PLAN_AGAIN = "write it again with equipoise plan or equipoise sweep"
Bottleneck = Literal["compute", "exchange", "noise", "data loading", "unknown"]
"""what limits the speed: computing, the exchange, or gradient noise past the critical batch"""


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """Predicted seconds of one optimizer step, and of its parts, each without overlap."""

    seconds: NonNegativeNumber
    """predicted seconds of the whole step"""
    compute: NonNegativeNumber
    """seconds of computation"""
    exchange: NonNegativeNumber
    """seconds of the gradient exchange"""


@dataclass(frozen=True, kw_only=True)
class PredictedSetting:
    """One setting that trains to the target, with its predicted time and cost."""

    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    global_batch: Count
    """examples per step of all workers"""
    lr: LearningRate | None
    """learning rate; None where the table has none"""
    seconds: IntervalEstimate
    """seconds to the target of a single run"""
    worker_seconds: PositiveNumber
    """cost of a single run: seconds times workers"""
    step: StepPrediction
    """predicted seconds of one step"""
    examples: PositiveNumber
    """examples to the target"""
    measured: bool
    """true if the step time and the examples were both measured at this setting"""
    device: str | None = None
    """kind of worker, as in the table of step times; None where that names none"""
    dollars: PositiveNumber | None = None
    """cost of a single run in dollars; None without the price of a worker"""
    joules: PositiveNumber | None = None
    """energy of a single run; None where neither joules of steps nor the power of a worker are known"""

    def __post_init__(self) -> None:
        if self.nodes > self.workers:
            raise ValueError(f"{self.workers} workers cannot run on {self.nodes} nodes")
        if self.seconds.value <= 0:
            raise ValueError("no run takes 0 seconds")
        if self.global_batch % (self.workers * self.batch):
            raise ValueError(
                f"global batch of {self.global_batch} is not a multiple of {self.workers} workers x"
                f" {self.batch} examples"
            )


@dataclass(frozen=True, kw_only=True)
class PlanOptionEntry(PredictedSetting):
    """Setting that the plan was chosen from, with what limits its speed."""

    binding: Bottleneck
    """what limits the speed: computing, the exchange, gradient noise past the critical batch, or reading batches;
    unknown where no step times tell computing from the exchange"""


@dataclass(frozen=True, kw_only=True)
class PlanEntry(PlanOptionEntry):
    """Recommended setting, or the runner-up, with the reason in one sentence."""

    why: str
    """reason for the setting, in one sentence"""
    runs: NonNegativeCount = 0
    """runs that reached the target at this global batch and learning rate"""
    exchange: str = ""
    """way of exchange as `sync/compression/all-reduce/servers/sharding`; empty for exact sums in every step, of workers
    with the whole model"""
    sharding: str = "none"
    """what each worker holds of the model, as the name of the way of exchange says: the value of --sharding"""
    momentum: NonNegativeNumber | None = None
    """momentum of the optimizer, where it is not that of `setup`: asynchronous updates may want less"""

    def with_exchange(self, name: str) -> Self:
        """Return the entry with a way of exchange, and the sharding that its name tells."""
        return replace(self, exchange=name, sharding=parse_exchange(name).sharding)


@dataclass(frozen=True, kw_only=True)
class TargetPlan:
    """What the same training runs say of one of several targets."""

    target: FiniteNumber
    """value of the validation metric"""
    critical_batch: IntervalEstimate | None
    """critical batch in examples; None if the runs do not show where it lies"""
    min_examples: IntervalEstimate | None
    """examples to the target at a very small batch"""
    reached: NonNegativeCount
    """runs at the best learning rate of their batch that reached the target"""
    plan: PlanEntry | None
    """recommended setting for this target; None if it cannot be planned for"""


@dataclass(frozen=True, kw_only=True)
class PlanDocument:
    """Contents of plan.json; parts are None where what they need was not measured, and `warnings` say what to do."""

    schema: Literal[1] = 1
    """version of the format"""
    status: PlanStatus = "not confirmed"
    """what the last training run with the settings of the plan said of it, see `confirmations`"""
    plan: PlanEntry | None
    """recommended setting"""
    runner_up: PlanEntry | None = None
    """best setting with another number of workers or another batch"""
    front: tuple[PredictedSetting, ...]
    """Pareto front of time against cost, the fastest first"""
    energy_front: tuple[PlanOptionEntry, ...] = ()
    """Pareto front of time against energy, the fastest first; the last setting needs the least energy"""
    options: tuple[PlanOptionEntry, ...] = ()
    """all settings that the plan was chosen from"""
    knee: PredictedSetting | None = None
    """setting of the front beyond which less time costs much more"""
    system: StepTimeSection | None = None
    """fit of the step times"""
    statistical: ExamplesSection | None = None
    """fit of the examples to the target"""
    warnings: tuple[str, ...]
    """sentences on what to measure, or what to be careful about"""
    setup: TrainingSetup | None = None
    """what the measurements were taken with; None where tables of others were given"""
    confirmations: tuple[ConfirmationResult, ...] = ()
    """training runs with this plan, or with earlier ones that they refuted, the oldest first"""
    targets: tuple[TargetPlan, ...] = ()
    """critical batch and plan of each target, the easiest first, of a sweep to several; the last is that of `plan`"""
    schedule: BatchSchedule | None = None
    """plan whose batch grows on the way through these targets; no command trains it"""
    exchanges: tuple[ExchangeVerdict, ...] = ()
    """what to do with each other way of exchange that was considered, the soonest at the target first"""
    switches_at: SwitchesAt | None = None
    """networks at which the best way of exchange changes; None if no other one was measured"""
    exchange_map: ExchangeMap | None = None
    """best way of exchange over rates and delays of the network; None if no other one was measured"""
    worker_speeds: WorkerSpeeds | None = None
    """what workers of unequal speed cost; None where they are equal, or their speeds were not measured"""

    def __post_init__(self) -> None:
        if self.status != (status := find_plan_status(self.plan, self.confirmations)):
            raise ValueError(
                f"the status is {self.status!r} and the training runs in `confirmations` say {status!r}, so the plan is"
                " damaged"
            )

    @property
    def unit(self) -> tuple[str, int]:
        """Unit in which people count the examples, and the number of units in an example."""
        return (self.setup.unit, self.setup.units_per_example) if self.setup else ("examples", 1)

    def with_confirmations(self, runs: Sequence[ConfirmationResult]) -> Self:
        """Return the document with these training runs, and with the status that they give the plan."""
        return replace(self, status=find_plan_status(self.plan, runs), confirmations=tuple(runs))

    def to_json(self) -> JsonObject:
        """Return the contents of plan.json."""
        return asdict(self) | {"system": self.system and self.system.to_json()}

    @classmethod
    def from_json(cls, contents: object, problem: str = "cannot read the plan", remedy: str = WRITE_PLAN_AGAIN) -> Self:
        """Build a document from the contents of plan.json; refuse contents that are none, or of another schema."""
        if not is_plan(contents):
            raise EquipoiseError(
                "plan-invalid", f"{problem}: it was not written by equipoise plan or equipoise sweep", remedy
            )
        if type(schema := contents.get("schema")) is not int or schema != PLAN_SCHEMA:  # True and 1.0 equal 1
            raise EquipoiseError(
                "plan-invalid", f"{problem}: its schema is {schema!a:.40}, this version reads {PLAN_SCHEMA}", remedy
            )
        contents = contents | {"setup": rename_old_setup_keys(contents.get("setup"))}
        return decode_json_value(contents, cls, code="plan-invalid", problem=problem, remedy=remedy)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the plan.json at a path."""
        return cls.from_json(read_json(path), f"cannot read {path}")


def is_plan(contents: object) -> TypeGuard[dict[str, object]]:
    """Return whether parsed JSON has the keys of a plan, whatever they hold."""
    return isinstance(contents, dict) and all(key in contents for key in PLAN_KEYS)
