"""Map both curves of a workload on a cluster, recommend a plan, and confirm it.

Times steps over workers and batch (one group of workers for each number), searches
examples to the target over global batch, learning rate and seed, multiplies, and trains
once with the plan. The same command again goes on where it was cut off.
"""

import math
import re
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import ray.train
import tyro
from ray.tune import Callback

from dashboards import experiments
from dashboards import reports as pages
from equipoise.config import Optimizer, Precision, Trial
from equipoise.planning import step_time_fit as system
from equipoise.planning.search import ANY, Bounds, Grid, Search
from equipoise.planning.step_time_fit import System
from equipoise.planning.step_time_model import Places
from equipoise.runs import folder as runs
from equipoise.storage import atomic as store
from equipoise.storage.retry import Away
from equipoise.workloads import workload
from jobs.cli import plan_report as aloud
from jobs.cli.paths import Given, require_plain, unusable
from jobs.cli.sweep_status import Board
from jobs.cluster import resources as cluster
from jobs.cluster import wait as room
from jobs.ray_train import trackers
from jobs.ray_train.run import begins, placed, require_urls
from jobs.ray_train.stopping import GOES_ON, cause
from jobs.ray_tune import step_timing as ladder
from jobs.ray_tune import tuner as tuning
from jobs.ray_tune.confirmation import CONFIRM_SEED, confirmed, planned
from jobs.ray_tune.single_worker_trial import split_matters
from jobs.ray_tune.tuner import COLUMNS, Hopeless, Policy, Sweep

MOST_SEEDS = 1000
LEAST_SEARCH = 0.4  # of the budget is for trials, however long the timing of steps took


@dataclass(frozen=True, kw_only=True)
class Asked:
    __doc__ = __doc__

    workload: str
    """digits, fashion-mnist, cifar10, folder, vending, vending-source, or module:attribute of your own"""
    out: Given
    """folder or URL for tables, records, plan.json and the confirming run"""
    workers: tuple[int, ...] = (1, 2)
    """numbers of workers to choose from"""
    batch: str = "8:512"
    """batches per worker to choose from, LEAST:MOST, in octaves"""
    lr: str = "0.05"
    """learning rate to start the search from at a batch of 32, or the range to stay in: 0.01:0.5"""
    budget_seconds: float = 120.0
    """time for timing steps and for trials; those under way are then stopped, and what was found is planned with"""
    exhaustive: bool = False
    """try every batch with five learning rates and all seeds, however long that takes"""
    seeds: int = 5
    """of each setting of an exhaustive sweep"""
    trials: Literal["accumulated", "real"] = "accumulated"
    """one worker stands for all by taking their parts in turn, or every trial runs on its real workers"""
    track: Literal["tensorboard", "mlflow", "wandb"] | None = None
    """show the trials in this tracker too"""
    seed: int = 0
    """of the first trials; further ones count on from here"""
    model: str | None = None
    """lenet or any torchvision classifier; the workload's own if not given"""
    data: str = "data"
    """folder of the workload's files"""
    size: int | None = None
    """pixels a side of its pictures; the workload's own if not given"""
    init: str | None = None
    """start trials from what another model has learned: a bundle, a run, or torchvision for its published weights"""
    reuse: bool = True
    """take over the classifier's rows of classes that the other model knows by name"""
    freeze: int = 0
    """stages at the bottom of the model that learn nothing more"""
    body_lr: float | None = None
    """learning rate of all but the classifier, as a share of the trial's; 0.1 with --init, else 1"""
    optimizer: Optimizer = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    precision: Precision = "fp32"
    augment: bool = True
    threads: int = 1
    """of each worker"""
    target: float | None = None
    """metric on the validation split at which a trial has learned enough; the workload's own if not given"""
    examples: int | None = None
    """cap of a trial; 50 passes if not given"""
    evaluate: int | None = None
    """examples between evaluations; a quarter of a pass if not given"""

    def base(self) -> Trial:
        """The trial that all others vary."""
        names = {field.name for field in fields(Trial)} - {"workers", "batch"}
        shared = {name: getattr(self, name) for name in names if hasattr(self, name)}
        start, _ = self.rates()
        trial = Trial(**shared | {"lr": start})
        return replace(trial, **placed(trial))

    def batches(self) -> list[int]:
        """Batches per worker, in octaves."""
        found = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})", self.batch)
        if not found or int(found[1]) > int(found[2]):
            raise ValueError(f"batch must be LEAST:MOST such as 8:512, got {self.batch!r}")
        least, most = int(found[1]), int(found[2])
        return [least * 2**k for k in range(int(math.log2(most / least)) + 1)]

    def ladders(self, most: int) -> dict[int, list[int]]:
        """Batches to time, by number of workers: those whose global batch is no more than `most` examples."""
        found = {n: [batch for batch in self.batches() if n * batch <= most] for n in sorted(set(self.workers))}
        if not any(found.values()):
            raise ValueError(f"no batch of {self.batch} fits the {most} training examples: choose smaller ones")
        return {workers: batches for workers, batches in found.items() if batches}

    def rates(self) -> tuple[float, Bounds]:
        """The learning rate to start from, and those allowed."""
        try:
            numbers = [float(part) for part in self.lr.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) == 1 and 0 < numbers[0] < math.inf:
            return numbers[0], ANY
        if len(numbers) == 2 and 0 < numbers[0] <= numbers[1] < math.inf:
            return math.sqrt(numbers[0] * numbers[1]), (numbers[0], numbers[1])
        raise ValueError(f"lr must be a number above 0 such as 0.05, or LEAST:MOST such as 0.01:0.5, got {self.lr!r}")

    def until(self, start: float, now: float) -> float:
        """When trials end, of a sweep that began at `start` and has timed its steps by `now`."""
        return max(start + self.budget_seconds, now + LEAST_SEARCH * self.budget_seconds)

    def check(self) -> None:
        """Refuse what makes no sweep."""
        if not self.workers or min(self.workers) < 1:
            raise ValueError(f"workers must be numbers of at least 1, got {self.workers}")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be from 1 to {MOST_SEEDS:,}, got {self.seeds}")
        Trial(workload=self.workload, seed=self.seed + CONFIRM_SEED + MOST_SEEDS)  # the last that trials may need
        if not 0 < self.budget_seconds < math.inf:
            raise ValueError(f"budget-seconds must be a finite number above 0, got {self.budget_seconds}")


def main() -> int:
    """Exit status: 0 a plan was found and confirmed, 1 not, 2 asked for what cannot be."""
    asked = tyro.cli(Asked)
    try:
        asked.check()
        require_plain(asked.out)
        return sweep(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ray.train.TrainingFailedError as error:
        print(f"error: a run on the cluster failed: {cause(error)}", file=sys.stderr)
        return 1
    except Away as error:
        print(f"error: {error}: {GOES_ON}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {unusable(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: the same command goes on", file=sys.stderr)
        cluster.leave(143)


def sweep(asked: Asked) -> int:
    """The whole way from a workload to a confirmed plan."""
    base, out = asked.base(), asked.out.absolute()
    cluster.note_place(asked.out)
    require_urls(base, out)
    made = workload(base)
    if beginning := begins(base, made):
        print(beginning, flush=True)
    ladders = asked.ladders(len(made.train))
    callbacks = trackers.callbacks(asked.track, out)
    runs.require_writable(out)
    runs.require_ours(out, base)
    tuning.ended(out / "trials", base)  # what is damaged there is said before a cluster is waited for
    cluster.connect()
    _, gpu = cluster.require_slots(max(asked.workers), base.threads)
    cluster.patience(elastic=False)
    with runs.claimed(out, base):
        room.wait_for(max(ladders), base.threads, gpu)  # before the clock runs, and for all groups of workers at once
        slots = max(max(ladders), cluster.held(base.threads, gpu))  # trials let a cluster grow no further than that
        start = time.time()
        steps, exchanges = timed(base, ladders, out, gpu)
        share = exchanges.bytes / steps.gradient_bytes.iloc[0]
        fastest = Fastest(system.fitted(steps, exchanges.assign(share=share)))
        trials = Sweep(
            base=base,
            folder=out / "trials",
            workers_at=fastest.workers,
            slots=slots,
            gpu=gpu,
            real=asked.trials == "real",
            whole=0 if split_matters(made.model()) else int(steps.batch.max()),
            until=math.inf if asked.exhaustive else asked.until(start, time.time()),
        )
        searched(asked, trials, fastest, callbacks)
        table(paced(steps, tuning.drift(tuning.ended(trials.folder, base))), out / "system.csv")
        facts = planned(out)
        print(aloud.told(facts))
        status = confirmed(base, out, facts)
        print(f"  pages      {', '.join(map(str, pages.left(experiments.at(out))))}")
        return status


def timed(base: Trial, ladders: dict[int, list[int]], out: Path, gpu: bool) -> ladder.Timed:
    """Steps and exchanges, left in tables."""
    rows, exchanges = ladder.measured(base, ladders, out / "system", gpu)
    if (apart := ladder.apart(rows)) is not None:
        print(f"the same setting timed twice differed by {apart:.1%} at most", flush=True)
    steps = rows[~rows["repeat"]].drop(columns="repeat")
    table(steps, out / "system.csv")
    if len(exchanges):
        table(exchanges, out / "exchange.csv")
    return ladder.Timed(steps, exchanges)


class Fastest:
    """For each global batch, the workers that take a step with it soonest, and the seconds they take."""

    def __init__(self, timed: System) -> None:
        self.seconds: dict[int, float] = {}
        self.workers: dict[int, int] = {}
        at = Places.of(timed.rows.sort_values(["workers", "batch"]))
        for workers, batch, seconds in zip(*(part.tolist() for part in (*at[1:], timed.believed(at))), strict=True):
            whole = int(workers * batch)
            if seconds < self.seconds.get(whole, math.inf):
                self.seconds[whole], self.workers[whole] = seconds, int(workers)

    def step(self, global_batch: int) -> float:
        """Seconds of a step."""
        return self.seconds[global_batch]


def searched(asked: Asked, trials: Sweep, fastest: Fastest, callbacks: list[Callback]) -> None:
    """Trials over global batch, learning rate and seed, as the policy asks for them; a table of what they found."""
    trials.folder.mkdir(exist_ok=True)
    batches = sorted(fastest.seconds)
    start, bounds = asked.rates()
    start *= math.sqrt(batches[0] / 32)
    step, grid = fastest.step, asked.exhaustive
    search = Grid(batches, start, step, asked.seeds, bounds) if grid else Search(batches, start, step, bounds)
    with Board(trials.workers_at, trials.until) as board:
        policy = Policy(search, trials, board)
        trials.tuner(policy, None if grid else Hopeless(policy), callbacks).fit()
    found = policy.finished.assign(seed=policy.finished.seed + trials.base.seed).sort_values(COLUMNS[:3])
    if len(found) < 2:
        ended = "no trial" if found.empty else "one trial"
        remedy = "give a larger --budget-seconds; what is there is not repeated"
        raise ValueError(f"{ended} ended within {asked.budget_seconds:g} s, and a curve needs two: {remedy}")
    print(f"{len(found)} trials, {int(found.reached.sum())} of them reached the target", flush=True)
    if trials.busy:
        whole = (trials.held + trials.starting) / trials.busy - 1
        longer = f"they took {whole:.0%} longer than their training and evaluating"
        print(f"{longer}, with {trials.starting:.0f} s in which their processes started", flush=True)
    table(found, trials.folder.parent / "statistical.csv")


def paced(rows: pd.DataFrame, drift: float) -> pd.DataFrame:
    """The timed steps, with how far a later run may differ: it drifts between them and what was timed, both ways."""
    return rows.assign(pace_sd=np.hypot(rows.pace_sd, math.sqrt(2) * drift))


def table(rows: pd.DataFrame, path: Path) -> None:
    """Rows as a file that is whole or not there."""
    with store.whole(path) as temporary:
        rows.to_csv(temporary, index=False)


if __name__ == "__main__":
    sys.exit(main())
