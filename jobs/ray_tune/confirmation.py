"""The plan that a sweep's tables make, and the run that confirms it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from equipoise.config import TrainConfig
from equipoise.planning.document import PlanRequest, build_plan_document, read_request
from equipoise.runs.folder import load_finished_run
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json
from jobs.ray_train.run import train_on_cluster, write_run_page

CONFIRMATION_SEED_OFFSET = 1000  # beyond those of trials: the plan is tried on what it has not seen


def sweep_plan_options(out: Path) -> PlanRequest:
    """Read a sweep's tables, as they are planned with."""
    exchange = out / "exchange.csv"
    found = exchange if exchange.exists() else None
    return read_request(system=out / "system.csv", exchange=found, statistical=out / "statistical.csv")


def write_plan(out: Path) -> dict[str, Any]:
    """Write the plan that a sweep's tables make to plan.json, and return it."""
    facts = build_plan_document(sweep_plan_options(out))
    write_json(out / "plan.json", facts)
    return facts


def run_confirmation(base: TrainConfig, out: Path, plan_document: dict[str, Any]) -> int:
    """Train with the plan, say how well it was predicted, and return the exit status."""
    chosen = plan_document["plan"]
    if chosen is None:
        return 1
    workers, batch, lr = (chosen[name] for name in ("workers", "batch", "lr"))
    trial = replace(base, workers=workers, batch_size=batch, lr=lr, seed=base.seed + CONFIRMATION_SEED_OFFSET)
    place = out / "confirm" / f"{workers}x{batch}-lr-{lr:g}"  # a longer search may come to another plan
    before = load_finished_run(place, trial)
    record = before or train_on_cluster(trial, place)
    if record is None:
        return 143
    write_run_page(record, place)
    foretold = chosen["seconds"]
    spent = record.seconds * record.examples_to_target / record.laps[-1].seen if record.examples_to_target else None
    inside = spent is not None and foretold["low"] <= spent <= foretold["high"]
    found = {"seconds": spent, "foretold": foretold, "inside": inside}
    write_json(out / "confirm.json", found | (prediction_ratios(record, chosen) if spent else {}))
    if spent is None:
        print(f"confirming run: {record.outcome} without reaching the target: see {place}")
        return 1
    which = "confirming run of an earlier command" if before else "confirming run"
    print(
        f"{which}: {spent:.3g} s to the target, {foretold['value']:.3g} foretold"
        f" ({foretold['low']:.3g} to {foretold['high']:.3g}: {'inside' if inside else 'outside'})"
    )
    return 0


def prediction_ratios(record: Record, plan: dict[str, Any]) -> dict[str, Any]:
    """Compare what the time is made of with what was foretold: examples to the target, and seconds of a step."""
    seen, step = float(record.examples_to_target or 0), record.seconds / record.laps[-1].step
    pairs = {"examples": (seen, plan["examples"]), "step": (step, plan["step"]["seconds"])}
    return {name: {"value": one, "foretold": other, "ratio": one / other} for name, (one, other) in pairs.items()}
