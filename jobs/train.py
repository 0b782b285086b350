"""Train one model on a Ray cluster, with as many workers as requested.

The command writes record.json, model.safetensors and checkpoints/ to --out. Run again, the same command resumes an
interrupted run, or says that the run is finished.

Exit status: 0 finished; 1 the run failed, or the object store did not answer; 2 wrong options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from equipoise.command_line import STOPPED, command, describe_os_error
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_joules, format_units, make_printable, pluralize
from equipoise.registries.all_reduce_registry import require_runnable_algorithm
from equipoise.registries.exchange_registry import require_effective_options
from equipoise.registries.option_groups import PLACEMENT_OPTIONS
from equipoise.registries.sharding_registry import require_elastic_sharding
from equipoise.runs.folder import load_finished_run
from equipoise.runs.noise_scale import explain_missing_noise_scale
from equipoise.runs.record import Record, mean_noise_scale
from equipoise.runs.run_end import find_kept_lap
from equipoise.workloads import Workload, load_workload
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import OptionalPathOrUrl, PathOrUrl, validate_locations
from jobs.cli.plan_options import apply_plan
from jobs.cli.plan_setup import require_same_setup
from jobs.cluster.resources import exit_at_once, warn_if_temporary_folder
from jobs.ray_train.run import require_usable_locations, train_on_cluster, write_run_page
from jobs.ray_train.stopping import RESUME_HINT
from jobs.ray_train.trackers import TrackerName, require_usable_tracker


class WorkerRange(NamedTuple):
    """Number of workers, and the fewest to continue with when nodes are lost."""

    fewest: int
    most: int

    @classmethod
    def parse(cls, text: str) -> "WorkerRange":
        """Parse `4` or `1:4`, the fewest before the number."""
        fewest, _, most = text.rpartition(":")
        workers = cls(int(fewest or most), int(most))
        if not 1 <= workers.fewest <= workers.most:
            raise EquipoiseError(
                "option-range",
                f"workers must be at least 1, and the first number of a range the smaller one, got {text}",
            )
        return workers

    def __str__(self) -> str:
        return str(self.most) if self.fewest == self.most else f"{self.fewest}:{self.most}"


ONE_WORKER = WorkerRange(1, 1)
WORKER_RANGE_SPEC = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N|MIN:N",
    instance_from_str=lambda texts: WorkerRange.parse(texts[0]),
    is_instance=lambda value: isinstance(value, WorkerRange),
    str_from_instance=lambda value: [str(value)],
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainConfig):
    __doc__ = __doc__

    workers: Annotated[int, tyro.conf.Fixed, tyro.conf.Suppress] = 1  # taken from the range
    worker_range: Annotated[WorkerRange, WORKER_RANGE_SPEC, tyro.conf.arg(name="workers")] = ONE_WORKER
    """processes that share every global batch; 1:4 continues with as few as 1 when nodes are lost"""
    out: PathOrUrl
    """folder or URL for the record, the model and checkpoints; with several nodes, one that all of them can write to"""
    plan: OptionalPathOrUrl = None
    """plan.json, or folder of a sweep, to take workers, batch size, gradient accumulation, learning rate and way of
    exchange from"""
    track: TrackerName | None = None
    """experiment tracker that also shows the laps"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for workers in range(self.min_workers, self.workers):  # an elastic run may get any of these numbers
            require_runnable_algorithm(self.all_reduce, workers)
        require_elastic_sharding(self.sharding_method, self.min_workers, self.workers)

    @property
    def _max_workers(self) -> int:
        workers = max(self.workers, self.worker_range.most)
        if self.plan is not None and workers == 1:  # the plan has yet to say how many, and train_config checks again
            return max(1, self.servers, self.sharding_method.group_size)
        return workers

    def train_config(self) -> TrainConfig:
        """Return the options of the training run alone, without --out, --plan and --track."""
        if self.pipeline_schedule != TrainConfig.pipeline_schedule and self.sharding_method.kind != "pipeline":
            raise EquipoiseError("option-conflict", "--pipeline-schedule has no effect without --sharding pipeline:K")
        changed = [field.name for field in fields(TrainConfig) if getattr(self, field.name) != field.default]
        require_effective_options(self.sync_method, self.compression_method, changed)
        return TrainConfig(**{field.name: getattr(self, field.name) for field in fields(TrainConfig)})

    @property
    def min_workers(self) -> int:
        """Number of workers below which the run waits for nodes; all of them if a plan has set their number."""
        return self.worker_range.fewest if self.worker_range.most == self.workers else self.workers


def parse_train_options(arguments: Sequence[str] | None = None) -> TrainOptions:
    """Parse the command line, with the number of workers from their range."""
    options = parse_options(TrainOptions, arguments)
    return replace(options, workers=options.worker_range.most)


@command(on_stop="stopped before training started", on_store_failure=RESUME_HINT)
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_train_options()
    validate_locations(options.out, options.plan)
    warn_if_temporary_folder(options.out)
    options = apply_plan(options)
    config, out = options.train_config(), options.out.absolute()
    require_usable_locations(config, out)
    require_no_other_results(out, "run")
    require_usable_tracker(options.track, out)
    if record := load_finished_run(out, config, PLACEMENT_OPTIONS):
        print(f"{out} already holds this run, which has ended: nothing to do")
    else:
        planned_machine = require_same_setup(options.plan, config, load_if_workload(config)) if options.plan else None
        record = train_on_cluster(config, out, options.min_workers, options.track, planned_machine)
    if record is None:
        continuation = "runs the training command again" if config.command else "resumes from the last checkpoint"
        print(f"stopped; the same command {continuation} in {out}")
        exit_at_once(STOPPED)  # the last checkpoint is complete; Ray would take seconds to end
    print(format_summary(record, out))
    try:
        print(f"  page       {write_run_page(record, out)}")
    except (OSError, EquipoiseError) as error:  # the run itself is complete without it
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        print(make_printable(f"note: cannot write the page of the run: {reason}"), file=sys.stderr)
    return 1 if record.failed else 0


def load_if_workload(config: TrainConfig) -> Workload | None:
    """Load the workload of a run; None for a run of a command."""
    return None if config.command else load_workload(config)


def describe_kept_weights(record: Record) -> list[str]:
    """Return a line on the weights that --keep best has kept; none for the last ones."""
    lap = find_kept_lap(record)
    if record.config.keep == "last" or lap is None:
        return []
    return [f"  kept       weights after {lap.seen:,} examples: {lap.metric:g} on validation"]


def format_target_result(record: Record) -> str:
    """Format the target of a run and when it was reached; the best metric of a run without a target."""
    if record.target is None:
        metrics = [lap.metric for lap in record.laps if lap.metric is not None]
        return "none" + (
            f"; the best {record.metric_name} on validation was {record.goal.best(metrics):.4g}" if metrics else ""
        )
    reached = f"{record.examples_to_target:,.0f} examples" if record.examples_to_target else "not reached"
    return f"{record.goal.describe()} on validation: {reached}"


def format_noise_scale(record: Record) -> str:
    """Format the gradient noise scale of a run in examples, and in the unit of its workload."""
    noise = mean_noise_scale(record.laps)
    if noise is None:
        return f"not measurable: {explain_missing_noise_scale(record.config, sum(lap.draws for lap in record.laps))}"
    return f"about {noise:,.0f} examples{format_units(round(noise), record.unit, record.units_per_example)}"


def describe_energy_used(record: Record) -> list[str]:
    """Return a line on the energy of a run, or that its machine tells none; no line for a command's own affair."""
    if record.config.command or not record.laps:
        return []
    if record.joules is None:
        return ["  energy     unknown, as this machine has no counters that you may read; --watts assumes a power"]
    assumed = "" if record.config.watts is None else f", assuming {record.config.watts:,.4g} W a worker"
    return [f"  energy     {format_joules(record.joules)}{assumed}"]


def format_growth(record: Record) -> str:
    """Format the batch at the end of a run whose batch grows; an empty text for all others."""
    if not record.config.batch_growth or not record.laps:
        return ""
    return f" at the start and {record.laps[-1].global_batch} at the end"


def format_summary(record: Record, out: Path) -> str:
    """Format the record as a few lines of text."""
    config = record.config
    return "\n".join(
        make_printable(line)
        for line in [
            f"{config.name}: {pluralize(config.workers, 'worker')} "
            f"x {config.batch_size} x {config.grad_accumulation}"
            f" = {config.global_batch} examples per step{format_growth(record)}, lr {config.lr:g}, seed {config.seed}",
            f"  ended      {record.outcome} after {record.laps[-1].seen if record.laps else 0:,} examples"
            f" in {record.seconds:.1f} s of training ({record.examples_per_second:,.0f} examples/s)",
            f"  target     {format_target_result(record)}",
            *describe_kept_weights(record),
            f"  test       {'not measured' if record.test is None else format(record.test, '.4f')}",
            f"  noise      {format_noise_scale(record)}",
            *describe_energy_used(record),
            f"  record     {out / 'record.json'}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
