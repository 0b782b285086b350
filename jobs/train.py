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

from equipoise.config import Trial
from equipoise.runs import folder as runs
from equipoise.runs.record import Record, noise_scale
from equipoise.storage.retry import Away
from jobs.cli import plan_options as planned
from jobs.cli.paths import Given, require_plain, unusable
from jobs.cluster import resources as cluster
from jobs.ray_train.run import leave_page, require_urls, train
from jobs.ray_train.stopping import failure

STOPPED = 143  # the exit status of a process that SIGTERM ended


class Span(int):
    """A number of workers, and the fewest to go on with when some are lost."""

    fewest: int

    @classmethod
    def read(cls, text: str) -> "Span":
        """From `4`, or `1:4`."""
        fewest, _, most = text.rpartition(":")
        span = cls(most)
        span.fewest = int(fewest or most)
        if not 1 <= span.fewest <= span:
            raise ValueError(f"workers must be at least 1, and a range must rise, got {text}")
        return span


SPAN = tyro.constructors.PrimitiveConstructorSpec(
    nargs=1,
    metavar="N|FEWEST:N",
    instance_from_str=lambda texts: Span.read(texts[0]),
    is_instance=lambda value: isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)


@dataclass(frozen=True, kw_only=True)
class Asked(Trial):
    __doc__ = __doc__

    workers: Annotated[int, SPAN] = 1
    """processes that share every global batch; 1:4 goes on with as few as 1 when nodes are lost"""
    out: Given
    """folder or URL for the record, the model and checkpoints; with several nodes, one that all of them reach"""
    plan: Given | None = None
    """take workers, batch, accumulation and learning rate from this plan.json, or from the folder of a sweep"""

    def trial(self) -> Trial:
        """What is asked, without where to put it."""
        asked = {field.name: getattr(self, field.name) for field in fields(Trial)}
        return Trial(**{**asked, "workers": int(self.workers)})

    @property
    def fewest(self) -> int:
        """Workers without which the run waits."""
        return self.workers.fewest if isinstance(self.workers, Span) else self.workers


def main() -> int:
    """Exit status: 0 ended as it should, 1 failed, 2 asked for what cannot be, 143 stopped."""
    asked = tyro.cli(Asked)
    try:
        require_plain(asked.out, asked.plan)
        cluster.note_place(asked.out)
        asked = planned.followed(asked)
        trial, out = asked.trial(), asked.out.absolute()
        require_urls(trial, out)
        if record := runs.finished(out, trial):
            print(f"{out} holds this trial, and it has ended: nothing to do")
        else:
            record = train(trial, out, asked.fewest)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (ray.train.TrainingFailedError, Away) as error:
        print(f"error: {failure(error)}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped before the training began", file=sys.stderr)
        return STOPPED
    if record is None:
        print(f"stopped; the same command goes on from the last checkpoint in {out}")
        return STOPPED
    print(summary(record, out))
    try:
        print(f"  page       {leave_page(record, out)}")
    except OSError as error:
        print(f"note: no page was written: {unusable(error)}", file=sys.stderr)
    return 1 if record.ended.startswith("failed") else 0


def summary(record: Record, out: Path) -> str:
    """The record in a few lines."""
    trial = record.trial
    crossed = f"{record.examples_to_target:,.0f} examples" if record.examples_to_target else "not reached"
    noise = noise_scale(record.laps)
    return "\n".join(
        [
            f"{trial.workload}: {trial.workers} worker{'s' * (trial.workers > 1)} x {trial.batch} x {trial.accumulate}"
            f" = {trial.global_batch} examples a step, lr {trial.lr:g}, seed {trial.seed}",
            f"  ended      {record.ended} after {record.laps[-1].seen if record.laps else 0:,} examples"
            f" in {record.seconds:.1f} s of training ({record.examples_per_second:,.0f} examples/s)",
            f"  target     {record.target:g} on validation: {crossed}",
            f"  test       {'not taken' if record.test is None else format(record.test, '.4f')}",
            f"  noise      {'not measurable' if noise is None else f'about {noise:,.0f} examples'}",
            f"  record     {out / 'record.json'}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
