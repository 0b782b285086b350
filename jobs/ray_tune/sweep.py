"""A sweep from its options to its confirmed plan."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray.tune import Callback

from dashboards.experiments import load_experiment
from dashboards.reports import write_pages
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.planning.document import PlanDocument
from equipoise.planning.recipe_choice.recipe_report import RECIPES_FILE
from equipoise.planning.search import GridSearch, LrBounds, Search
from equipoise.planning.sharding.memory_report import MEMORY_FILE, build_memory_report
from equipoise.planning.sharding.worker_limit import WorkerLimit
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.runs.folder import claim_run_folder, require_same_config, require_writable
from equipoise.storage.atomic import write_json
from equipoise.workloads.notebook import name_factory, register_factory
from jobs.cli.output_folder import require_no_other_results
from jobs.cli.paths import validate_locations
from jobs.cli.sweep_setup import forget_empty_sweep, require_same_sweep_setup, write_sweep_setup
from jobs.cli.sweep_status import SweepStatus
from jobs.cluster.resources import (
    connect_to_cluster,
    require_slots,
    set_worker_group_timeout,
    total_slots,
    warn_if_temporary_folder,
)
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trackers import build_tracker_callbacks
from jobs.ray_tune.confirmation import confirm_plan
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts, build_exchange_facts
from jobs.ray_tune.exchanges.exchange_option import names_no_exchange, require_usable_ranks
from jobs.ray_tune.exchanges.exchange_sweep import (
    ExchangeSweep,
    add_asynchronous_candidate,
    keep_candidates_between_nodes,
    list_candidates,
)
from jobs.ray_tune.exchanges.exchange_tables import add_exchange_steps, build_run_table
from jobs.ray_tune.exchanges.exchange_trials import load_exchange_trials
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.pace_drift import add_pace_noise, estimate_pace_drift
from jobs.ray_tune.recipes.recipe_sweep import ChosenRecipe, RecipeSweep, require_trainable_recipes, search_recipes
from jobs.ray_tune.run_trials import run_trials
from jobs.ray_tune.sweep_options import SweepOptions, build_sweep_options
from jobs.ray_tune.sweep_subject import SweepSubject, load_sweep_subject
from jobs.ray_tune.target_crossings import write_crossings
from jobs.ray_tune.trial_budget import describe_trials, leave_out_unaffordable_batches, require_finished_trials
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, load_finished_trials
from jobs.ray_tune.tuner import SearchAdapter, SweepTrials
from jobs.timing.exchange_step_timing import load_exchange_timings
from jobs.timing.timing_records import TimingTables
from jobs.timing.timing_tables import fit_timings, write_csv, write_timings


def sweep_function(
    factory: Callable[[TrainConfig], Any], out: str | Path, workers: Sequence[int], options: Mapping[str, Any]
) -> PlanDocument:
    """Sweep the workload that a function returns, with options of the command by their names; return the plan.

    Ray takes the function along by value, in the code that each of its processes runs when it starts.
    """
    if ray.is_initialized():
        raise EquipoiseError(
            "option-conflict",
            "cannot sweep a function: this process has joined a Ray already, whose workers would not know the function",
            "call ray.shutdown() first; a cluster that is not of this process goes on",
        )
    name = name_factory(factory)
    sweep_options = build_sweep_options(name, out, workers, options)
    sweep_options.validate()
    validate_locations(sweep_options.out, sweep_options.config.data, sweep_options.config.init_from)
    require_picklable(name, factory)

    def register_in_process() -> None:
        register_factory(name, factory)

    register_in_process()
    try:
        return run_sweep(sweep_options, register_in_process)
    finally:
        ray.shutdown()


def require_picklable(name: str, factory: Callable[[TrainConfig], Any]) -> None:
    """Refuse a function that Ray cannot take to its workers, as one that uses a lock."""
    try:
        ray.cloudpickle.dumps(factory)
    except Exception as error:
        raise EquipoiseError(
            "workload-invalid",
            f"cannot send {name} to the workers: it uses something that cannot be pickled ({first_error_line(error)})",
            "create that inside of the function",
        ) from error


def run_sweep(options: SweepOptions, worker_setup: Callable[[], None] | None = None) -> PlanDocument:
    """Time steps, run trials, write the plan and confirm it; return the last plan with its status.

    Each process of Ray calls `worker_setup` when it starts.
    """
    base, out = options.base_config(), options.out.absolute()
    warn_if_temporary_folder(options.out)
    require_no_other_results(out, "sweep")
    subject = load_sweep_subject(base, out, options.target, with_sizes=options.memory_bytes is not None)
    base = subject.base
    require_trainable_recipes(base, options.parsed_recipes)
    batches_by_workers = options.batches_by_workers(subject.num_examples)
    max_workers = max(batches_by_workers)
    callbacks = build_tracker_callbacks(options.track, out)
    require_writable(out)
    require_same_config(out, base)
    require_same_sweep_setup(out, subject.setup)
    load_finished_trials(out / "trials", base)  # refuses damaged files before waiting for a cluster
    load_exchange_trials(out / "trials", base)
    facts = describe_exchanges(options, subject, max_workers)
    connect_to_cluster(worker_setup)
    _, gpu = require_slots(max_workers, base.threads)
    facts = add_memory_limit(facts, options.memory_bytes, subject, gpu)
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
        trials = build_sweep_trials(options, subject, timings, fastest, slots, gpu)
        leave_out_unaffordable_batches(trials, fastest, step_time_fit, subject.num_examples)
        setup = replace(subject.setup, machine=timings.machine)
        trials, setup = choose_recipe(options, ChosenRecipe(trials, setup), fastest, timings, step_time_fit, callbacks)
        facts = replace(facts, candidates=()) if options.recipes else facts
        facts = keep_candidates_between_nodes(facts, options.exchanges, int(timings.steps.nodes.max()))
        facts = add_asynchronous_candidate(facts, options.exchanges, timings.steps)
        exchange_sweep = ExchangeSweep(
            facts,
            timings,
            step_time_fit,
            trials,
            options.budget.seconds,
            are_named=not names_no_exchange(options.exchanges),
        )
        if not options.recipes:
            exchange_sweep.reserve_time()
            run_search(options, trials, fastest, callbacks)
            search_exchanges(options, exchange_sweep, fastest, callbacks)
        write_crossings(trials.folder, fastest.seconds_by_batch, subject.targets)
        write_tables(timings.steps, exchange_sweep, out)
        document = confirm_plan(trials.base, out, setup, exchange_sweep.last_deadline, exchange_sweep.facts)
        write_memory_report(document, exchange_sweep.facts.memory, timings, out)
        print(f"  pages      {', '.join(map(str, write_pages(load_experiment(out))))}")
        return document


def describe_exchanges(options: SweepOptions, subject: SweepSubject, max_workers: int) -> ExchangeFacts:
    """Return what is known of the ways of exchange that a sweep considers, with what it has timed before."""
    require_usable_ranks(options.exchanges, subject.gradient_shapes)
    candidates = list_candidates(options.exchanges, max_workers, subject.base.command)
    timings = load_exchange_timings(options.out.absolute() / "system")
    return build_exchange_facts(subject.base, subject.gradient_shapes, candidates, timings)


def add_memory_limit(
    facts: ExchangeFacts, memory_bytes: float | None, subject: SweepSubject, gpu: bool
) -> ExchangeFacts:
    """Return the facts with the limit of a worker's memory, if there is one."""
    if memory_bytes is None or subject.model_sizes is None:
        return facts
    limit = WorkerLimit(limit_bytes=memory_bytes, sizes=subject.model_sizes, config=subject.base, has_gpu=gpu)
    return replace(facts, memory=limit)


def build_sweep_trials(
    options: SweepOptions,
    subject: SweepSubject,
    timings: TimingTables,
    fastest_workers: FastestWorkers,
    slots: int,
    gpu: bool,
) -> SweepTrials:
    """Build the trials with exact sums of a sweep whose steps were timed."""
    return SweepTrials(
        base=subject.base,
        folder=options.out.absolute() / "trials",
        workers_by_batch=fastest_workers.workers_by_batch,
        slots=slots,
        gpu=gpu,
        real_workers=subject.runs_real_workers or options.trials == "real",
        max_unsplit_batch=0 if subject.depends_on_batch_split else int(timings.steps.batch.max()),
        deadline=timings.started_at + options.budget.seconds,
    )


def search_exchanges(
    options: SweepOptions, exchange_sweep: ExchangeSweep, fastest_workers: FastestWorkers, callbacks: list[Callback]
) -> None:
    """Try other ways of exchange where they may gain; if none does, go on with trials that were stopped for them."""
    trials = exchange_sweep.trials
    were_stopped = trials.reserve is None and trials.deadline < exchange_sweep.last_deadline
    has_tried = exchange_sweep.run(callbacks)
    if were_stopped and not has_tried:
        trials.deadline = exchange_sweep.last_deadline
        run_search(options, trials, fastest_workers, callbacks)


def write_tables(steps: pd.DataFrame, exchange_sweep: ExchangeSweep, out: Path) -> None:
    """Write system.csv with the drift of the machine's pace, and the trials of all ways of exchange."""
    trials, facts = exchange_sweep.trials, exchange_sweep.facts
    pace_drift = estimate_pace_drift(load_finished_trials(trials.folder, trials.base))
    timed = [row for row in facts.timings.steps if facts.candidates or row.exchange in facts.shardings]
    steps = add_exchange_steps(add_pace_noise(steps, pace_drift), exchange_sweep.step_fit, timed)
    write_csv(steps, out / "system.csv")
    runs = build_run_table(trials.folder, trials.base, trials.workers_by_batch, with_exchanges=bool(facts.candidates))
    write_csv(runs, out / "statistical.csv")


def write_memory_report(document: PlanDocument, limit: WorkerLimit | None, timings: TimingTables, out: Path) -> None:
    """Write memory.json, for the page of the plan, if there is a limit of memory."""
    if limit is not None:
        write_json(out / MEMORY_FILE, build_memory_report(limit, document.plan, timings.steps).to_json())


def choose_recipe(
    options: SweepOptions,
    plain: ChosenRecipe,
    fastest_workers: FastestWorkers,
    timings: TimingTables,
    step_time_fit: StepTimeFit,
    callbacks: list[Callback],
) -> ChosenRecipe:
    """Return the recipe that a sweep goes on with: the plain one, unless others are to be compared with it."""
    if not options.recipes:
        (options.out.absolute() / RECIPES_FILE).unlink(missing_ok=True)  # the plan is the plain one again
        return plain
    first_lr = find_first_lr(options, plain.trials, fastest_workers)
    sweep = RecipeSweep(options.parsed_recipes, plain.trials, fastest_workers, first_lr)
    return search_recipes(sweep, plain.setup, timings.steps, step_time_fit, callbacks, options.out.absolute())


def find_first_lr(
    options: SweepOptions, trials: SweepTrials, fastest_workers: FastestWorkers
) -> tuple[float, LrBounds]:
    """Return the learning rate to start the search from at the smallest batch, and its bounds."""
    smallest = min(fastest_workers.seconds_by_batch)
    return trials.base.lr * math.sqrt(smallest / 32), options.initial_lr_and_bounds()[1]


def run_search(
    options: SweepOptions, sweep_trials: SweepTrials, fastest_workers: FastestWorkers, callbacks: list[Callback]
) -> None:
    """Run the trials that the search suggests, and write their results to statistical.csv."""
    sweep_trials.folder.mkdir(exist_ok=True)
    seconds_for_trials = sweep_trials.deadline - time.time()
    batches = sorted(fastest_workers.seconds_by_batch)
    initial_lr, bounds = find_first_lr(options, sweep_trials, fastest_workers)
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
