"""The plan that the tables of a sweep lead to, and the training run that confirms it."""

from dataclasses import replace
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.planning.build_document import PlanRequest, build_plan_document, read_request
from equipoise.planning.confirmation import CONFIRMATION_FILE, ConfirmationResult, PredictionCheck
from equipoise.planning.document import PLAN_FILE, PlanDocument, PlanEntry
from equipoise.planning.training_setup import TrainingSetup
from equipoise.runs.folder import load_finished_run
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from jobs.ray_train.run import train_on_cluster, write_run_page

CONFIRMATION_SEED_OFFSET = 1000  # above the seeds of all trials: the plan is tested on a seed that it was not chosen by


def sweep_plan_options(out: Path) -> PlanRequest:
    """Read the tables of a sweep as a request for a plan."""
    exchange = out / "exchange.csv"
    return read_request(
        system=out / "system.csv",
        exchange=exchange if exchange.exists() else None,
        statistical=out / "statistical.csv",
    )


def write_plan(out: Path, setup: TrainingSetup) -> PlanDocument:
    """Build the plan from the tables of a sweep, write it to plan.json with their setup, and return it."""
    document = replace(build_plan_document(sweep_plan_options(out)), setup=setup)
    write_json(out / PLAN_FILE, document.to_json())
    return document


def run_confirmation(base: TrainConfig, out: Path, document: PlanDocument) -> int:
    """Train with the plan, print how well its time was predicted, and return the exit status."""
    plan = document.plan
    if plan is None:
        return 1
    lr = base.lr if plan.lr is None else plan.lr
    config = replace(
        base, workers=plan.workers, batch_size=plan.batch, lr=lr, seed=base.seed + CONFIRMATION_SEED_OFFSET
    )
    folder = out / "confirm" / f"{plan.workers}x{plan.batch}-lr-{lr:g}"  # a longer search may lead to another plan
    finished = load_finished_run(folder, config)
    record = finished or train_on_cluster(config, folder)
    if record is None:
        return 143
    write_run_page(record, folder)
    confirmation = compare_with_plan(record, plan)
    write_json(out / CONFIRMATION_FILE, confirmation.to_json())
    if confirmation.seconds is None:
        print(f"confirmation run: {record.outcome} without reaching the target; see {folder}")
        return 1
    title = "confirmation run of an earlier command" if finished else "confirmation run"
    predicted = confirmation.predicted
    print(
        f"{title}: {confirmation.seconds:.3g} s to the target, {'inside' if confirmation.inside else 'outside'}"
        f" the predicted {predicted.low:.3g} to {predicted.high:.3g} s (best estimate {predicted.value:.3g} s)"
    )
    return 0


def compare_with_plan(record: Record, plan: PlanEntry) -> ConfirmationResult:
    """Compare a run's seconds and examples to the target, and seconds per step, with their predictions in the plan."""
    if not record.examples_to_target:
        return ConfirmationResult(seconds=None, predicted=plan.seconds, inside=False)
    last = record.laps[-1]
    seconds = record.seconds * record.examples_to_target / last.seen
    return ConfirmationResult(
        seconds=seconds,
        predicted=plan.seconds,
        inside=plan.seconds.includes(seconds),
        examples=check_prediction(float(record.examples_to_target), plan.examples),
        step=check_prediction(record.seconds / last.step, plan.step.seconds),
    )


def check_prediction(measured: float, predicted: float) -> PredictionCheck:
    """Return a measured value beside its prediction."""
    return PredictionCheck(value=measured, predicted=predicted, ratio=measured / predicted)
