"""The plan that a sweep's tables make, and the run that confirms it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from equipoise.config import Trial
from equipoise.planning.document import PlanRequest, document, read_request
from equipoise.runs import folder as runs
from equipoise.runs.record import Record
from equipoise.storage import atomic as store
from jobs.ray_train.run import leave_page, train

CONFIRM_SEED = 1000  # beyond those of trials: the plan is tried on what it has not seen


def tables_of(out: Path) -> PlanRequest:
    """Read a sweep's tables, as they are planned with."""
    exchange = out / "exchange.csv"
    found = exchange if exchange.exists() else None
    return read_request(system=out / "system.csv", exchange=found, statistical=out / "statistical.csv")


def planned(out: Path) -> dict[str, Any]:
    """Write the plan that a sweep's tables make to plan.json, and return it."""
    facts = document(tables_of(out))
    store.write_json(out / "plan.json", facts)
    return facts


def confirmed(base: Trial, out: Path, facts: dict[str, Any]) -> int:
    """Train with the plan, say how well it was predicted, and return the exit status."""
    chosen = facts["plan"]
    if chosen is None:
        return 1
    workers, batch, lr = (chosen[name] for name in ("workers", "batch", "lr"))
    trial = replace(base, workers=workers, batch=batch, lr=lr, seed=base.seed + CONFIRM_SEED)
    place = out / "confirm" / f"{workers}x{batch}-lr-{lr:g}"  # a longer search may come to another plan
    before = runs.finished(place, trial)
    record = before or train(trial, place)
    if record is None:
        return 143
    leave_page(record, place)
    foretold = chosen["seconds"]
    spent = record.seconds * record.examples_to_target / record.laps[-1].seen if record.examples_to_target else None
    inside = spent is not None and foretold["low"] <= spent <= foretold["high"]
    found = {"seconds": spent, "foretold": foretold, "inside": inside}
    store.write_json(out / "confirm.json", found | (parts(record, chosen) if spent else {}))
    if spent is None:
        print(f"confirming run: {record.ended} without reaching the target: see {place}")
        return 1
    which = "confirming run of an earlier command" if before else "confirming run"
    print(
        f"{which}: {spent:.3g} s to the target, {foretold['value']:.3g} foretold"
        f" ({foretold['low']:.3g} to {foretold['high']:.3g}: {'inside' if inside else 'outside'})"
    )
    return 0


def parts(record: Record, chosen: dict[str, Any]) -> dict[str, Any]:
    """Compare what the time is made of with what was foretold: examples to the target, and seconds of a step."""
    seen, step = float(record.examples_to_target or 0), record.seconds / record.laps[-1].step
    pairs = {"examples": (seen, chosen["examples"]), "step": (step, chosen["step"]["seconds"])}
    return {name: {"value": one, "foretold": other, "ratio": one / other} for name, (one, other) in pairs.items()}
