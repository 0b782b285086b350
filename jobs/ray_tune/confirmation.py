"""The plan that the tables of a sweep lead to, and the training runs that confirm or refute it.

A run that refutes its plan is one more observation: the tables are fitted again with it, and the next best plan is
tried.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from equipoise.config import TrainConfig
from equipoise.planning.build_document import build_plan_document
from equipoise.planning.confirmation import ConfirmationResult, PredictionCheck
from equipoise.planning.document import PLAN_FILE, PlanDocument, PlanEntry
from equipoise.planning.energy.plan_energy import add_energy_front, label_energy
from equipoise.planning.energy.step_energy import assume_power, fit_step_energy
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchanges.training_options import name_exchange, replace_exchange
from equipoise.planning.replanning.folder_tables import read_sweep_request
from equipoise.planning.replanning.refuting_runs import add_refuting_runs
from equipoise.planning.training_setup import TrainingSetup
from equipoise.registries.sweep_recipes import PLAIN_RECIPE
from equipoise.runs.folder import load_finished_run
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from jobs.cli.plan_report import format_confirmation, format_plan
from jobs.ray_train.run import train_on_cluster, write_run_page
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.plan_exchanges import add_sweep_verdicts, list_exchange_runs, select_exact_request
from jobs.ray_tune.exchanges.plan_memory import add_memory_verdicts, limit_memory

CONFIRMATION_SEED_OFFSET = 1000  # above the seeds of all trials: the plan is tested on a seed that it was not chosen by
MAX_FURTHER_PLANS = 2  # tried after a plan was refuted, while there is time
MAX_TURNS = 3  # of runs of a plan and of exact sums: short runs scatter by half, and a single pair is a coin
CLEAR_GAIN = 2.0  # times as fast, after which no further turn is needed
SHORT_TURN_SECONDS = 60.0  # of a turn that may follow whatever time is left


class RunStopped(Exception):  # noqa: N818 - an interruption, not an error
    """The confirmation run was stopped by a signal."""


def confirm_plan(
    base: TrainConfig, out: Path, setup: TrainingSetup, deadline: float, facts: ExchangeFacts | None = None
) -> PlanDocument:
    """Write and print the plan of a sweep, train with it, and try the next best ones if the runs refute it.

    Further plans are tried until `deadline`, a Unix time. Return the last plan with its status.
    """
    refuted = load_refuting_runs(out, setup)
    folder = find_confirmation_folder(out, setup)
    document = write_plan(out, setup, refuted, facts, base.watts)
    print(format_plan(document))
    for _ in range(1 + MAX_FURTHER_PLANS):
        if document.plan is None:
            return document
        results = run_in_turns(base, folder, document.plan, document.runner_up, refuted, deadline)
        if have_confirmed(results):
            document = document.with_confirmations((*refuted, *results))
            write_json(out / PLAN_FILE, document.to_json())
            return document
        refuted += [result for result in results if result.status == "refuted" or result.exchange]
        document = write_plan(out, setup, refuted, facts, base.watts)
        print(f"plans again with this run as one more observation\n{format_plan(document)}")
        if time.time() > deadline:
            break
    if document.plan is not None:
        print("this plan is not confirmed yet: the same command goes on with a run of it")
    return document


def find_confirmation_folder(out: Path, setup: TrainingSetup) -> Path:
    """Return the folder of the runs with a plan; those of a recipe have one of their own."""
    folder = out / "confirm"
    if setup.recipe in (None, PLAIN_RECIPE):
        return folder
    return folder / setup.recipe.replace(":", "-")


def run_in_turns(
    base: TrainConfig,
    folder: Path,
    plan: PlanEntry,
    runner_up: PlanEntry | None,
    refuting_runs: Sequence[ConfirmationResult],
    deadline: float,
) -> list[ConfirmationResult]:
    """Train with a plan; if it has another way of exchange, in turns with its runner-up with exact sums, which begins.

    Where the first two runs do not tell clearly which is faster, more follow, as far as they are short or there is time
    until `deadline`.
    """
    if not plan.exchange or runner_up is None:
        return [run_confirmation(base, folder, plan, refuting_runs)]
    results: list[ConfirmationResult] = []
    for _ in range(MAX_TURNS):
        start = time.time()
        for other in (runner_up, plan):
            results.append(run_confirmation(base, folder, other, [*refuting_runs, *results]))
        seconds = time.time() - start
        is_affordable = seconds <= SHORT_TURN_SECONDS or time.time() + seconds <= deadline
        if not have_confirmed(results) or min(list_gains(results)) >= CLEAR_GAIN or not is_affordable:
            break
    return results


def have_confirmed(results: Sequence[ConfirmationResult]) -> bool:
    """Return whether a run confirmed its plan; of runs in turns, whether those of the plan were faster each time."""
    gains = list_gains(results)
    is_faster = not gains or (min(gains) > 1 and geometric_mean(gains) >= MIN_GAIN)
    return results[-1].status == "confirmed" and is_faster


def list_gains(results: Sequence[ConfirmationResult]) -> list[float]:
    """Return how many times as fast each run of a plan was as that with exact sums before it; none of a lone run."""
    pairs = zip(results[::2], results[1::2], strict=False)
    return [(exact.seconds or math.inf) / own.seconds if own.seconds else 0.0 for exact, own in pairs]


def write_plan(
    out: Path,
    setup: TrainingSetup,
    refuting_runs: Sequence[ConfirmationResult] = (),
    facts: ExchangeFacts | None = None,
    watts: float | None = None,
) -> PlanDocument:
    """Build the plan from the tables of a sweep, write it to plan.json with their setup, and return it.

    Runs that refuted an earlier plan are added to the tables. With facts on other ways of exchange there are verdicts
    on them. Energies are those of the step times, or of a power that is assumed.
    """
    request = read_sweep_request(out)
    exact = add_refuting_runs(select_exact_request(request), [run for run in refuting_runs if not run.exchange])
    exact = limit_memory(exact, facts)
    document = build_plan_document(exact)
    if facts and facts.candidates:
        document = add_sweep_verdicts(document, exact, list_exchange_runs(request), facts, refuting_runs)
    if facts and facts.memory:
        document = add_memory_verdicts(document, exact, facts, refuting_runs)
    document = label_energy(document, fit_step_energy(exact.system) or assume_power(watts))
    document = replace(add_energy_front(document, watts), setup=setup).with_confirmations(refuting_runs)
    write_json(out / PLAN_FILE, document.to_json())
    return document


def load_refuting_runs(out: Path, setup: TrainingSetup) -> list[ConfirmationResult]:
    """Read the runs that refuted earlier plans of a sweep from its plan.json; those of another recipe say nothing."""
    if not (out / PLAN_FILE).exists():
        return []
    document = PlanDocument.read(out / PLAN_FILE)
    recipe = document.setup.recipe if document.setup else None
    if (recipe or PLAIN_RECIPE) != (setup.recipe or PLAIN_RECIPE):
        return []
    return [run for run in document.confirmations if run.status == "refuted"]


def run_confirmation(
    base: TrainConfig, folder: Path, plan: PlanEntry, refuting_runs: Sequence[ConfirmationResult]
) -> ConfirmationResult:
    """Train with a plan, unless an earlier command did, and print and return how well its time was predicted."""
    lr = base.lr if plan.lr is None else plan.lr
    setting = (plan.workers, plan.batch, lr, plan.exchange)
    num_earlier = sum((run.workers, run.batch, run.lr, run.exchange) == setting for run in refuting_runs)
    seed = base.seed + CONFIRMATION_SEED_OFFSET + num_earlier
    config = replace(base, workers=plan.workers, batch_size=plan.batch, lr=lr, seed=seed)
    if plan.momentum is not None:
        config = replace(config, momentum=plan.momentum)
    config = replace_exchange(config, plan.exchange)
    folder = folder / name_confirmation_folder(config)
    finished = load_finished_run(folder, config)
    record = finished or train_on_cluster(config, folder)
    if record is None:
        raise RunStopped
    write_run_page(record, folder)
    result = compare_with_plan(record, plan)
    print(f"{format_confirmation(result)}{' (run of an earlier command)' if finished else ''}")
    return result


def name_confirmation_folder(config: TrainConfig) -> str:
    """Return the name of the folder of a confirmation run."""
    words = name_exchange(config).replace(":", "-").replace("/", "-")
    name = f"{config.workers}x{config.batch_size}-lr-{config.lr:g}-seed-{config.seed}"
    return f"{name}-{words}" if words else name


def compare_with_plan(record: Record, plan: PlanEntry) -> ConfirmationResult:
    """Compare a run's seconds and examples to the target, and seconds per step, with their predictions in the plan."""
    config, last = record.config, record.laps[-1] if record.laps else None
    seen = last.seen if last else config.global_batch
    examples = record.examples_to_target or seen
    seconds = record.seconds * examples / seen if record.examples_to_target else None
    return ConfirmationResult(
        nodes=plan.nodes,
        workers=config.workers,
        batch=config.batch_size,
        lr=config.lr,
        seed=config.seed,
        outcome=record.outcome,
        seconds=seconds,
        predicted=plan.seconds,
        inside=seconds is not None and plan.seconds.includes(seconds),
        examples=check_prediction(float(examples), plan.examples),
        step=check_prediction(record.seconds / last.step, plan.step.seconds) if last else None,
        exchange=plan.exchange,
    )


def check_prediction(measured: float, predicted: float) -> PredictionCheck:
    """Return a measured value beside its prediction."""
    return PredictionCheck(value=measured, predicted=predicted, ratio=measured / predicted)
