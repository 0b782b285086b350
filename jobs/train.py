"""Train one trial on a Ray cluster, with as many workers as asked.

Leaves record.json, model.safetensors and checkpoints/ in --out. The same command again
goes on where the run was cut off, or says that it is finished.
"""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import ray.train
import tyro

from equipoise.config import TrainConfig
from equipoise.runs.folder import load_finished_run
from equipoise.runs.record import Record, mean_noise_scale
from equipoise.storage.retry import StoreUnavailable
from jobs.cli.paths import PathOrUrl, describe_os_error, validate_locations
from jobs.cli.plan_options import apply_plan
from jobs.cluster.resources import warn_if_temporary_folder
from jobs.ray_train.run import require_usable_locations, train_on_cluster, write_run_page
from jobs.ray_train.stopping import describe_failure

SIGTERM_EXIT_STATUS = 143  # the exit status of a process that SIGTERM ended


class WorkerRange(int):
    """A number of workers, and the fewest to go on with when some are lost."""

    min_workers: int

    @classmethod
    def parse(cls, text: str) -> "WorkerRange":
        """From `4`, or `1:4`."""
        fewest, _, most = text.rpartition(":")
        span = cls(most)
        span.min_workers = int(fewest or most)
        if not 1 <= span.min_workers <= span:
            raise ValueError(f"workers must be at least 1, and a range must rise, got {text}")
        return span


WORKER_RANGE_SPEC = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N|FEWEST:N",
    instance_from_str=lambda texts: WorkerRange.parse(texts[0]),
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainConfig):
    __doc__ = __doc__

    workers: Annotated[int, WORKER_RANGE_SPEC] = 1
    """processes that share every global batch; 1:4 goes on with as few as 1 when nodes are lost"""
    out: PathOrUrl
    """folder or URL for the record, the model and checkpoints; with several nodes, one that all of them reach"""
    plan: PathOrUrl | None = None
    """take workers, batch, accumulation and learning rate from this plan.json, or from the folder of a sweep"""

    def train_config(self) -> TrainConfig:
        """What is asked, without where to put it."""
        asked = {field.name: getattr(self, field.name) for field in fields(TrainConfig)}
        return TrainConfig(**{**asked, "workers": int(self.workers)})

    @property
    def min_workers(self) -> int:
        """Workers without which the run waits."""
        return self.workers.min_workers if isinstance(self.workers, WorkerRange) else self.workers


def main() -> int:
    """Exit status: 0 ended as it should, 1 failed, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(TrainOptions)
    try:
        validate_locations(asked.out, asked.plan)
        warn_if_temporary_folder(asked.out)
        asked = apply_plan(asked)
        trial, out = asked.train_config(), asked.out.absolute()
        require_usable_locations(trial, out)
        if record := load_finished_run(out, trial):
            print(f"{out} holds this trial, and it has ended: nothing to do")
        else:
            record = train_on_cluster(trial, out, asked.min_workers)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ray.train.TrainingFailedError, StoreUnavailable) as error:
        print(f"error: {describe_failure(error)}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the training began", file=sys.stderr)
        return SIGTERM_EXIT_STATUS
    if record is None:
        print(f"stopped; the same command goes on from the last checkpoint in {out}")
        return SIGTERM_EXIT_STATUS
    print(format_summary(record, out))
    try:
        print(f"  page       {write_run_page(record, out)}")
    except OSError as error:
        print(f"note: no page was written: {describe_os_error(error)}", file=sys.stderr)
    return 1 if record.failed else 0


def format_summary(record: Record, out: Path) -> str:
    """The record in a few lines."""
    trial = record.config
    crossed = f"{record.examples_to_target:,.0f} examples" if record.examples_to_target else "not reached"
    noise = mean_noise_scale(record.laps)
    return "\n".join(
        [
            f"{trial.workload}: {trial.workers} worker{'s' * (trial.workers > 1)} "
            f"x {trial.batch_size} x {trial.grad_accumulation}"
            f" = {trial.global_batch} examples a step, lr {trial.lr:g}, seed {trial.seed}",
            f"  ended      {record.outcome} after {record.laps[-1].seen if record.laps else 0:,} examples"
            f" in {record.seconds:.1f} s of training ({record.examples_per_second:,.0f} examples/s)",
            f"  target     {record.target:g} on validation: {crossed}",
            f"  test       {'not taken' if record.test is None else format(record.test, '.4f')}",
            f"  noise      {'not measurable' if noise is None else f'about {noise:,.0f} examples'}",
            f"  record     {out / 'record.json'}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
