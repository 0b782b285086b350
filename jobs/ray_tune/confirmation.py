"""The plan that the tables of a sweep lead to, and the training run that confirms it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from equipoise.config import TrainConfig
from equipoise.planning.document import PlanRequest, build_plan_document, read_request
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


def write_plan(out: Path) -> dict[str, Any]:
    """Build the plan from the tables of a sweep, write it to plan.json, and return it."""
    document = build_plan_document(sweep_plan_options(out))
    write_json(out / "plan.json", document)
    return document


def run_confirmation(base: TrainConfig, out: Path, plan_document: dict[str, Any]) -> int:
    """Train with the plan, print how well its time was predicted, and return the exit status."""
    plan = plan_document["plan"]
    if plan is None:
        return 1
    workers, batch, lr = (plan[name] for name in ("workers", "batch", "lr"))
    config = replace(base, workers=workers, batch_size=batch, lr=lr, seed=base.seed + CONFIRMATION_SEED_OFFSET)
    folder = out / "confirm" / f"{workers}x{batch}-lr-{lr:g}"  # a longer search may lead to another plan
    finished = load_finished_run(folder, config)
    record = finished or train_on_cluster(config, folder)
    if record is None:
        return 143
    write_run_page(record, folder)
    predicted = plan["seconds"]
    spent = record.seconds * record.examples_to_target / record.laps[-1].seen if record.examples_to_target else None
    inside = spent is not None and predicted["low"] <= spent <= predicted["high"]
    result = {"seconds": spent, "predicted": predicted, "inside": inside}
    write_json(out / "confirm.json", result | (prediction_ratios(record, plan) if spent else {}))
    if spent is None:
        print(f"confirmation run: {record.outcome} without reaching the target; see {folder}")
        return 1
    title = "confirmation run of an earlier command" if finished else "confirmation run"
    print(
        f"{title}: {spent:.3g} s to the target, {'inside' if inside else 'outside'} the predicted"
        f" {predicted['low']:.3g} to {predicted['high']:.3g} s (best estimate {predicted['value']:.3g} s)"
    )
    return 0


def prediction_ratios(record: Record, plan: dict[str, Any]) -> dict[str, Any]:
    """Compare the measured examples to the target and seconds per step with their predictions in the plan."""
    seen, step = float(record.examples_to_target or 0), record.seconds / record.laps[-1].step
    pairs = {"examples": (seen, plan["examples"]), "step": (step, plan["step"]["seconds"])}
    return {
        name: {"value": measured, "predicted": predicted, "ratio": measured / predicted}
        for name, (measured, predicted) in pairs.items()
    }
