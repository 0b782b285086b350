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

from dashboards.experiments import load_experiment
from dashboards.reports import write_pages
from equipoise.config import OptimizerName, Precision, TrainConfig
from equipoise.planning.search import UNBOUNDED_LR, GridSearch, LrBounds, Search
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time
from equipoise.planning.step_time_model import StepSettings
from equipoise.runs.folder import claim_run_folder, require_same_config, require_writable
from equipoise.storage.atomic import atomic_write
from equipoise.storage.retry import StoreUnavailable
from equipoise.workloads import load_workload
from jobs.cli.paths import PathOrUrl, describe_os_error, validate_locations
from jobs.cli.plan_report import format_plan
from jobs.cli.sweep_status import SweepStatus
from jobs.cluster.resources import (
    connect_to_cluster,
    require_slots,
    set_worker_group_timeout,
    shutdown_and_exit,
    total_slots,
    warn_if_temporary_folder,
)
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.run import describe_initialization, require_usable_locations, resolve_trial_paths
from jobs.ray_train.stopping import RESUME_HINT, last_error_line
from jobs.ray_train.trackers import build_tracker_callbacks
from jobs.ray_tune.confirmation import CONFIRMATION_SEED_OFFSET, run_confirmation, write_plan
from jobs.ray_tune.single_worker_trial import depends_on_batch_split
from jobs.ray_tune.step_timing import TimingTables, max_repeat_error, time_batch_ladders
from jobs.ray_tune.tuner import (
    FINISHED_TRIAL_COLUMNS,
    PruneStopper,
    SearchAdapter,
    SweepTrials,
    estimate_pace_drift,
    load_finished_trials,
)

MAX_SEEDS = 1000
MIN_TRIAL_BUDGET_SHARE = 0.4  # of the budget is for trials, however long the timing of steps took


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    __doc__ = __doc__

    workload: str
    """digits, fashion-mnist, cifar10, folder, vending, vending-source, or module:attribute of your own"""
    out: PathOrUrl
    """folder or URL for tables, records, plan.json and the confirming run"""
    workers: tuple[int, ...] = (1, 2)
    """numbers of workers to choose from"""
    batch_size: str = "8:512"
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
    image_size: int | None = None
    """pixels a side of its pictures; the workload's own if not given"""
    init_from: str | None = None
    """start trials from what another model has learned: a bundle, a run, or torchvision for its published weights"""
    reuse_head: bool = True
    """take over the classifier's rows of classes that the other model knows by name"""
    freeze_stages: int = 0
    """stages at the bottom of the model that learn nothing more"""
    body_lr_scale: float | None = None
    """learning rate of all but the classifier, as a share of the trial's; 0.1 with --init-from, else 1"""
    optimizer: OptimizerName = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    precision: Precision = "fp32"
    augment: bool = True
    threads: int = 1
    """of each worker"""
    target: float | None = None
    """metric on the validation split at which a trial has learned enough; the workload's own if not given"""
    max_examples: int | None = None
    """cap of a trial; 50 passes if not given"""
    eval_every: int | None = None
    """examples between evaluations; a quarter of a pass if not given"""

    def base_config(self) -> TrainConfig:
        """The trial that all others vary."""
        names = {field.name for field in fields(TrainConfig)} - {"workers", "batch_size"}
        shared = {name: getattr(self, name) for name in names if hasattr(self, name)}
        start, _ = self.initial_lr_and_bounds()
        trial = TrainConfig(**shared | {"lr": start})
        return replace(trial, **resolve_trial_paths(trial))

    def batches_per_worker(self) -> list[int]:
        """Batches per worker, in octaves."""
        found = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})", self.batch_size)
        if not found or int(found[1]) > int(found[2]):
            raise ValueError(f"batch must be LEAST:MOST such as 8:512, got {self.batch_size!r}")
        least, most = int(found[1]), int(found[2])
        return [least * 2**k for k in range(int(math.log2(most / least)) + 1)]

    def batches_by_workers(self, max_global_batch: int) -> dict[int, list[int]]:
        """Batches to time, by number of workers: those whose global batch is no more than `most` examples."""
        found = {
            n: [batch for batch in self.batches_per_worker() if n * batch <= max_global_batch]
            for n in sorted(set(self.workers))
        }
        if not any(found.values()):
            raise ValueError(
                f"no batch of {self.batch_size} fits the {max_global_batch} training examples: choose smaller ones"
            )
        return {workers: batches for workers, batches in found.items() if batches}

    def initial_lr_and_bounds(self) -> tuple[float, LrBounds]:
        """The learning rate to start from, and those allowed."""
        try:
            numbers = [float(part) for part in self.lr.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) == 1 and 0 < numbers[0] < math.inf:
            return numbers[0], UNBOUNDED_LR
        if len(numbers) == 2 and 0 < numbers[0] <= numbers[1] < math.inf:
            return math.sqrt(numbers[0] * numbers[1]), (numbers[0], numbers[1])
        raise ValueError(f"lr must be a number above 0 such as 0.05, or LEAST:MOST such as 0.01:0.5, got {self.lr!r}")

    def trial_deadline(self, start: float, now: float) -> float:
        """When trials end, of a sweep that began at `start` and has timed its steps by `now`."""
        return max(start + self.budget_seconds, now + MIN_TRIAL_BUDGET_SHARE * self.budget_seconds)

    def validate(self) -> None:
        """Refuse what makes no sweep."""
        if not self.workers or min(self.workers) < 1:
            raise ValueError(f"workers must be numbers of at least 1, got {self.workers}")
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise ValueError(f"seeds must be from 1 to {MAX_SEEDS:,}, got {self.seeds}")
        TrainConfig(
            workload=self.workload, seed=self.seed + CONFIRMATION_SEED_OFFSET + MAX_SEEDS
        )  # the last that trials may need
        if not 0 < self.budget_seconds < math.inf:
            raise ValueError(f"budget-seconds must be a finite number above 0, got {self.budget_seconds}")


def main() -> int:
    """Exit status: 0 a plan was found and confirmed, 1 not, 2 asked for what cannot be."""
    asked = tyro.cli(SweepOptions)
    try:
        asked.validate()
        validate_locations(asked.out)
        return run_sweep(asked)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ray.train.TrainingFailedError as error:
        print(f"error: a run on the cluster failed: {last_error_line(error)}", file=sys.stderr)
        return 1
    except StoreUnavailable as error:
        print(f"error: {error}: {RESUME_HINT}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {describe_os_error(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: the same command goes on", file=sys.stderr)
        shutdown_and_exit(143)


def run_sweep(options: SweepOptions) -> int:
    """The whole way from a workload to a confirmed plan."""
    base, out = options.base_config(), options.out.absolute()
    warn_if_temporary_folder(options.out)
    require_usable_locations(base, out)
    made = load_workload(base)
    if beginning := describe_initialization(base, made):
        print(beginning, flush=True)
    ladders = options.batches_by_workers(len(made.train))
    callbacks = build_tracker_callbacks(options.track, out)
    require_writable(out)
    require_same_config(out, base)
    load_finished_trials(out / "trials", base)  # what is damaged there is said before a cluster is waited for
    connect_to_cluster()
    _, gpu = require_slots(max(options.workers), base.threads)
    set_worker_group_timeout(elastic=False)
    with claim_run_folder(out, base):
        wait_for_slots(max(ladders), base.threads, gpu)  # before the clock runs, and for all groups of workers at once
        slots = max(max(ladders), total_slots(base.threads, gpu))  # trials let a cluster grow no further than that
        start = time.time()
        steps, exchanges = time_steps_and_exchanges(base, ladders, out, gpu)
        share = exchanges.bytes / steps.gradient_bytes.iloc[0]
        fastest = FastestWorkers(fit_step_time(steps, exchanges.assign(share=share)))
        trials = SweepTrials(
            base=base,
            folder=out / "trials",
            workers_by_batch=fastest.workers_by_batch,
            slots=slots,
            gpu=gpu,
            real_workers=options.trials == "real",
            max_unsplit_batch=0 if depends_on_batch_split(made.model()) else int(steps.batch.max()),
            deadline=math.inf if options.exhaustive else options.trial_deadline(start, time.time()),
        )
        run_search(options, trials, fastest, callbacks)
        write_csv(
            add_pace_noise(steps, estimate_pace_drift(load_finished_trials(trials.folder, base))), out / "system.csv"
        )
        facts = write_plan(out)
        print(format_plan(facts))
        status = run_confirmation(base, out, facts)
        print(f"  pages      {', '.join(map(str, write_pages(load_experiment(out))))}")
        return status


def time_steps_and_exchanges(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], out: Path, gpu: bool
) -> TimingTables:
    """Steps and exchanges, left in tables."""
    rows, exchanges = time_batch_ladders(base, batches_by_workers, out / "system", gpu)
    if (apart := max_repeat_error(rows)) is not None:
        print(f"the same setting timed twice differed by {apart:.1%} at most", flush=True)
    steps = rows[~rows["repeat"]].drop(columns="repeat")
    write_csv(steps, out / "system.csv")
    if len(exchanges):
        write_csv(exchanges, out / "exchange.csv")
    return TimingTables(steps, exchanges)


class FastestWorkers:
    """For each global batch, the workers that take a step with it soonest, and the seconds they take."""

    def __init__(self, step_time_fit: StepTimeFit) -> None:
        self.seconds_by_batch: dict[int, float] = {}
        self.workers_by_batch: dict[int, int] = {}
        at = StepSettings.from_table(step_time_fit.rows.sort_values(["workers", "batch"]))
        for workers, batch, seconds in zip(
            *(part.tolist() for part in (*at[1:], step_time_fit.shrunk_seconds(at))), strict=True
        ):
            whole = int(workers * batch)
            if seconds < self.seconds_by_batch.get(whole, math.inf):
                self.seconds_by_batch[whole], self.workers_by_batch[whole] = seconds, int(workers)

    def step_seconds(self, global_batch: int) -> float:
        """Seconds of a step."""
        return self.seconds_by_batch[global_batch]


def run_search(
    options: SweepOptions, sweep_trials: SweepTrials, fastest_workers: FastestWorkers, callbacks: list[Callback]
) -> None:
    """Trials over global batch, learning rate and seed, as the policy asks for them; a table of what they found."""
    sweep_trials.folder.mkdir(exist_ok=True)
    batches = sorted(fastest_workers.seconds_by_batch)
    start, bounds = options.initial_lr_and_bounds()
    start *= math.sqrt(batches[0] / 32)
    step, grid = fastest_workers.step_seconds, options.exhaustive
    search = GridSearch(batches, start, step, options.seeds, bounds) if grid else Search(batches, start, step, bounds)
    with SweepStatus(sweep_trials.workers_by_batch, sweep_trials.deadline) as board:
        policy = SearchAdapter(search, sweep_trials, board)
        sweep_trials.build_tuner(policy, None if grid else PruneStopper(policy), callbacks).fit()
    found = policy.finished_trials.assign(seed=policy.finished_trials.seed + sweep_trials.base.seed).sort_values(
        FINISHED_TRIAL_COLUMNS[:3]
    )
    if len(found) < 2:
        ended = "no trial" if found.empty else "one trial"
        remedy = "give a larger --budget-seconds; what is there is not repeated"
        raise ValueError(f"{ended} ended within {options.budget_seconds:g} s, and a curve needs two: {remedy}")
    print(f"{len(found)} trials, {int(found.reached.sum())} of them reached the target", flush=True)
    if sweep_trials.train_seconds:
        whole = (sweep_trials.trial_seconds + sweep_trials.startup_seconds) / sweep_trials.train_seconds - 1
        longer = f"they took {whole:.0%} longer than their training and evaluating"
        print(f"{longer}, with {sweep_trials.startup_seconds:.0f} s in which their processes started", flush=True)
    write_csv(found, sweep_trials.folder.parent / "statistical.csv")


def add_pace_noise(step_rows: pd.DataFrame, pace_drift: float) -> pd.DataFrame:
    """The timed steps, with how far a later run may differ: it drifts between them and what was timed, both ways."""
    return step_rows.assign(pace_sd=np.hypot(step_rows.pace_sd, math.sqrt(2) * pace_drift))


def write_csv(rows: pd.DataFrame, path: Path) -> None:
    """Rows as a file that is whole or not there."""
    with atomic_write(path) as temporary:
        rows.to_csv(temporary, index=False)


if __name__ == "__main__":
    sys.exit(main())
