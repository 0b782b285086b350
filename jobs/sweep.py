"""Measure step times and examples to the target on a cluster, recommend a plan, and confirm it.

The command times steps over workers and batch size, searches the examples to the target over global batch, learning
rate and seed, multiplies both, and trains with the plan. Run again, the same command resumes an interrupted sweep.

Exit status: 0 a training run confirmed the plan; 1 none confirmed it, or the object store did not answer; 2 wrong
options or files; 143 stopped.
"""

from jobs import prepare_process

if __name__ == "__main__":
    prepare_process()

import math
import re
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal, TypeVar

import tyro
from ray.tune import Callback

from dashboards.experiments import load_experiment
from dashboards.reports import write_pages
from equipoise.command_line import STOPPED, command
from equipoise.config import FROM_WORKLOAD, KeptWeights, TrainConfig, WorkloadDefault
from equipoise.errors import EquipoiseError
from equipoise.planning.search import UNBOUNDED_LR, GridSearch, LrBounds, Search
from equipoise.planning.sweep_budget import SweepBudget
from equipoise.runs.folder import claim_run_folder, require_same_config, require_writable
from jobs.cli.option_parser import parse_options
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import PathOrUrl, validate_locations
from jobs.cli.sweep_setup import forget_empty_sweep, require_same_sweep_setup, write_sweep_setup
from jobs.cli.sweep_status import SweepStatus
from jobs.cluster.resources import (
    connect_to_cluster,
    exit_at_once,
    require_slots,
    set_worker_group_timeout,
    total_slots,
    warn_if_temporary_folder,
)
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.run import resolve_trial_paths
from jobs.ray_train.stopping import RESUME_HINT
from jobs.ray_train.trackers import TrackerName, build_tracker_callbacks
from jobs.ray_tune.confirmation import CONFIRMATION_SEED_OFFSET, RunStopped, confirm_plan
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.pace_drift import add_pace_noise, estimate_pace_drift
from jobs.ray_tune.run_trials import run_trials
from jobs.ray_tune.sweep_subject import DEFAULT_WORKERS, find_worker_counts, load_sweep_subject
from jobs.ray_tune.target_crossings import write_crossings
from jobs.ray_tune.trial_budget import describe_trials, leave_out_unaffordable_batches, require_finished_trials
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, load_finished_trials
from jobs.ray_tune.tuner import SearchAdapter, SweepTrials
from jobs.timing.timing_tables import fit_timings, write_csv, write_timings

T = TypeVar("T")

MAX_SEEDS = 1000

LeftOut = Annotated[T, tyro.conf.Fixed, tyro.conf.Suppress]
"""type of an option of training that a sweep does not take"""


@dataclass(frozen=True, kw_only=True)
class SharedTrainConfig(TrainConfig):
    """Options of training that all trials and the confirmation run share."""

    seed: int = 0
    """seed of the first trial of each setting; further trials use the following seeds"""
    workers: LeftOut[int] = 1  # a range of the sweep, as are batch size and learning rate
    batch_size: LeftOut[int] = 32
    lr: LeftOut[WorkloadDefault[float]] = FROM_WORKLOAD
    grad_accumulation: LeftOut[int] = 1  # lets one worker stand for all of them
    keep: LeftOut[KeptWeights] = "last"  # trials keep no weights, and the confirmation run stops at its target
    target: LeftOut[float | None] = None  # several of them are one option of the sweep
    patience: LeftOut[int | None] = None  # the search ends hopeless trials, and step timing has no metric to improve


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    __doc__ = __doc__

    out: PathOrUrl
    """folder or URL for tables, records, plan.json and the confirmation run"""
    config: Annotated[SharedTrainConfig, tyro.conf.OmitArgPrefixes]
    workers: tuple[int, ...] = DEFAULT_WORKERS
    """numbers of workers to choose from"""
    batch_size: str = "8:512"
    """batch sizes per worker to choose from, MIN:MAX, in steps of a factor of 2"""
    lr: str | None = None
    """learning rate at a batch size of 32 to start the search from, or MIN:MAX to stay in, such as 0.01:0.5; by default
    0.05, or what suits the workload"""
    target: tuple[float, ...] = ()
    """validation metrics to plan for: trials and the confirmation run train to the hardest one, and show when they pass
    the others; by default the workload's own target"""
    budget_seconds: float = 120.0
    """seconds for timing steps (40 % at most) and for trials; then running trials are stopped, and the finished ones
    make the plan"""
    exhaustive: bool = False
    """try every global batch with five learning rates and all seeds, however long that takes"""
    seeds: int = 5
    """number of seeds for each setting of an exhaustive sweep"""
    trials: Literal["accumulated", "real"] = "accumulated"
    """one worker processes the parts of all workers in turn (accumulated), or a trial runs on all its workers (real)"""
    track: TrackerName | None = None
    """experiment tracker that also shows the trials"""

    def base_config(self) -> TrainConfig:
        """Build the options that all trials share; each trial replaces batch size, learning rate and seed."""
        target = self.target[0] if self.target else None  # the hardest one is known once the workload is loaded
        trial = TrainConfig(**asdict(self.config) | {"lr": self.initial_lr_and_bounds()[0], "target": target})
        return resolve_trial_paths(trial)

    def batches_per_worker(self) -> list[int]:
        """Return the batch sizes per worker, each twice the one before."""
        match = re.fullmatch(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})", self.batch_size)
        if not match or int(match[1]) > int(match[2]):
            raise EquipoiseError("option-format", f"batch-size must be MIN:MAX such as 8:512, got {self.batch_size!r}")
        smallest, largest = int(match[1]), int(match[2])
        return [smallest * 2**k for k in range(int(math.log2(largest / smallest)) + 1)]

    def batches_by_workers(self, num_examples: int | None) -> dict[int, list[int]]:
        """Return the batch sizes to time by number of workers, up to a global batch of all examples."""
        limit = num_examples or sys.maxsize
        batches_by_workers = {
            workers: [batch for batch in self.batches_per_worker() if workers * batch <= limit]
            for workers in sorted(set(find_worker_counts(self.config.command, self.workers)))
        }
        if not any(batches_by_workers.values()):
            raise EquipoiseError(
                "option-range",
                f"no --batch-size of {self.batch_size} fits the {limit} training examples",
                "choose smaller ones",
            )
        return {workers: batches for workers, batches in batches_by_workers.items() if batches}

    def initial_lr_and_bounds(self) -> tuple[float | None, LrBounds]:
        """Return the learning rate to start from, None if it is not given, and the bounds of the search."""
        if self.lr is None:
            return None, UNBOUNDED_LR
        try:
            numbers = [float(part) for part in self.lr.split(":")]
        except ValueError:
            numbers = []
        lowest, highest = UNBOUNDED_LR
        if len(numbers) == 1 and lowest <= numbers[0] <= highest:
            return numbers[0], UNBOUNDED_LR
        if len(numbers) == 2 and lowest <= numbers[0] <= numbers[1] <= highest:
            return math.sqrt(numbers[0] * numbers[1]), (numbers[0], numbers[1])
        raise EquipoiseError(
            "option-format",
            f"lr must be from {lowest:g} to {highest:g} such as 0.05, or MIN:MAX such as 0.01:0.5, got {self.lr!r}",
        )

    @property
    def budget(self) -> SweepBudget:
        """Budget of the sweep; an exhaustive one has no limit."""
        return SweepBudget(seconds=math.inf if self.exhaustive else self.budget_seconds)

    def validate(self) -> None:
        """Refuse options that make no valid sweep."""
        if not self.workers or min(self.workers) < 1:
            raise EquipoiseError("option-range", f"workers must be numbers of at least 1, got {self.workers}")
        if not 1 <= self.seeds <= MAX_SEEDS:
            raise EquipoiseError("option-range", f"seeds must be from 1 to {MAX_SEEDS:,}, got {self.seeds}")
        last_seed = self.config.seed + CONFIRMATION_SEED_OFFSET + MAX_SEEDS
        replace(self.config, seed=last_seed)  # refuses one that is too large
        for value in self.target:
            replace(self.config, target=value)  # refuses one that is no finite number
        if not 0 < self.budget_seconds < math.inf:
            raise EquipoiseError(
                "option-range", f"budget-seconds must be a finite number above 0, got {self.budget_seconds}"
            )


@command(on_store_failure=RESUME_HINT)
def main() -> int:
    """Run the command and return its exit status."""
    options = parse_options(SweepOptions)
    options.validate()
    validate_locations(options.out, options.config.data, options.config.init_from)
    try:
        return run_sweep(options)
    except (KeyboardInterrupt, RunStopped):
        print("stopped; the same command resumes the sweep", file=sys.stderr)
        exit_at_once(STOPPED)


def run_sweep(options: SweepOptions) -> int:
    """Time steps, run trials, write the plan and confirm it; return the exit status."""
    base, out = options.base_config(), options.out.absolute()
    warn_if_temporary_folder(options.out)
    require_no_other_results(out, "sweep")
    subject = load_sweep_subject(base, out, options.target)
    base = subject.base
    batches_by_workers = options.batches_by_workers(subject.num_examples)
    max_workers = max(batches_by_workers)
    callbacks = build_tracker_callbacks(options.track, out)
    require_writable(out)
    require_same_config(out, base)
    require_same_sweep_setup(out, subject.setup)
    load_finished_trials(out / "trials", base)  # refuses damaged files before waiting for a cluster
    connect_to_cluster()
    _, gpu = require_slots(max_workers, base.threads)
    set_worker_group_timeout(elastic=False)
    with claim_run_folder(out, base):
        write_sweep_setup(out, subject.setup)
        wait_for_slots(max_workers, base.threads, gpu)  # once for all groups of workers, before the budget starts
        slots = max(max_workers, total_slots(base.threads, gpu))  # trials do not make the cluster grow further
        with forget_empty_sweep(out):
            timings = subject.time_steps(base, batches_by_workers, out / "system", gpu, options.budget.timing_seconds)
        timings = write_timings(timings, out)
        step_time_fit = fit_timings(timings)
        fastest = FastestWorkers(step_time_fit)
        trials = SweepTrials(
            base=base,
            folder=out / "trials",
            workers_by_batch=fastest.workers_by_batch,
            slots=slots,
            gpu=gpu,
            real_workers=subject.runs_real_workers or options.trials == "real",
            max_unsplit_batch=0 if subject.depends_on_batch_split else int(timings.steps.batch.max()),
            deadline=timings.started_at + options.budget.seconds,
        )
        leave_out_unaffordable_batches(trials, fastest, step_time_fit, subject.num_examples)
        run_search(options, trials, fastest, callbacks)
        write_crossings(trials.folder, fastest.seconds_by_batch, subject.targets)
        pace_drift = estimate_pace_drift(load_finished_trials(trials.folder, base))
        write_csv(add_pace_noise(timings.steps, pace_drift), out / "system.csv")
        document = confirm_plan(base, out, replace(subject.setup, machine=timings.machine), trials.deadline)
        print(f"  pages      {', '.join(map(str, write_pages(load_experiment(out))))}")
        return 0 if document.status == "confirmed" else 1


def run_search(
    options: SweepOptions, sweep_trials: SweepTrials, fastest_workers: FastestWorkers, callbacks: list[Callback]
) -> None:
    """Run the trials that the search suggests, and write their results to statistical.csv."""
    sweep_trials.folder.mkdir(exist_ok=True)
    seconds_for_trials = sweep_trials.deadline - time.time()
    batches = sorted(fastest_workers.seconds_by_batch)
    _, bounds = options.initial_lr_and_bounds()
    initial_lr = sweep_trials.base.lr * math.sqrt(batches[0] / 32)
    step_seconds = fastest_workers.step_seconds
    search = (
        GridSearch(batches, initial_lr, step_seconds, options.seeds, bounds)
        if options.exhaustive
        else Search(batches, initial_lr, step_seconds, bounds)
    )
    with SweepStatus(sweep_trials.workers_by_batch, sweep_trials.deadline) as status:
        adapter = SearchAdapter(search, sweep_trials, status)
        run_trials(adapter, callbacks, prune=not options.exhaustive)
        adapter.add_trials_that_ended_late()
    trials = adapter.finished_trials.assign(seed=adapter.finished_trials.seed + sweep_trials.base.seed)
    trials = trials.sort_values(FINISHED_TRIAL_COLUMNS[:3])
    require_finished_trials(
        trials,
        sweep_trials.folder,
        seconds_for_trials,
        sweep_trials.concurrent_trials,
        time_is_up=time.time() >= sweep_trials.deadline,
    )
    print(describe_trials(trials, sweep_trials.folder), flush=True)
    if sweep_trials.train_seconds:
        overhead = (sweep_trials.total_trial_seconds + sweep_trials.startup_seconds) / sweep_trials.train_seconds - 1
        startup = f"{sweep_trials.startup_seconds:.0f} s to start processes"
        print(f"they took {overhead:.0%} longer than training and evaluation alone, including {startup}", flush=True)
    write_csv(trials, sweep_trials.folder.parent / "statistical.csv")


if __name__ == "__main__":
    sys.exit(main())
