"""The contents of plan.json: what was measured, what it foretells, and the plan that follows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from equipoise.planning import examples_to_target as statistical
from equipoise.planning import measurements as tables
from equipoise.planning import plan
from equipoise.planning import step_time_fit as system
from equipoise.planning.examples_to_target import FAILS, Curve
from equipoise.planning.plan import Option, Place
from equipoise.planning.step_time_fit import COVERED, System
from equipoise.planning.step_time_model import LEVELS, Places


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRequest:
    """Measurements to plan with, and what the plan must keep."""

    system: pd.DataFrame | None = None
    """rows of nodes, workers, batch and seconds of a step"""
    exchange: pd.DataFrame | None = None
    """rows of exchanges timed by themselves, with their share of the gradient's bytes"""
    statistical: pd.DataFrame | None = None
    """rows of global_batch, lr, seed, examples and reached"""
    places: tuple[Place, ...] = ()
    """to predict and to plan for beside those measured"""
    batches: tuple[int, ...] = ()
    """global batches to predict and to plan for beside those measured"""
    deadline_seconds: float | None = None
    budget_seconds: float | None = None
    """worker-seconds that may be spent"""


def read_request(
    *, system: Path | None = None, exchange: Path | None = None, statistical: Path | None = None
) -> PlanRequest:
    """Read the tables of measurements, those that there are."""
    steps = tables.system(system) if system else None
    exchanges = tables.exchange(exchange, steps) if exchange and steps is not None else None
    runs = tables.statistical(statistical) if statistical else None
    return PlanRequest(system=steps, exchange=exchanges, statistical=runs)


def document(request: PlanRequest) -> dict[str, Any]:
    """Build the contents of plan.json."""
    at = request.places
    timed = timed_by(request)
    curve = None if request.statistical is None else statistical.fitted(request.statistical)
    facts: dict[str, Any] = {
        "schema": 1,
        "plan": None,
        "runner_up": None,
        "front": [],
        "options": [],
        "knee": None,
        "system": timed and system_part(timed, at),
        "statistical": curve and statistical_part(curve, request.batches),
        "warnings": [],
    }
    if not timed or not curve:
        missing = "--statistical" if timed else "--system"
        return facts | {"warnings": [f"no {missing} was given: the time to the target cannot be told"]}
    found = plan.options(timed, curve, places(timed, at), [*map(int, curve.means.index), *request.batches])
    ranked = plan.best(found, request.deadline_seconds, request.budget_seconds)
    first, second = (ranked[0], plan.runner_up(ranked)) if ranked else (None, None)
    facts |= {"plan": first and entry(first, second, curve), "runner_up": second and entry(second, None, curve)}
    along = plan.front(found)
    bend = plan.knee(along)
    facts |= {"front": [one.json() for one in along], "knee": bend and bend.json()}
    facts["options"] = [one.json() | {"binding": plan.binding(one, curve)} for one in found]
    facts["warnings"] = refusals(found, ranked, curve) + plan.warnings(first, timed, curve)
    return facts


def timed_by(request: PlanRequest) -> System | None:
    """Fit the step times, with the exchanges if they were timed by themselves."""
    if request.system is None:
        return None
    exchanges = request.exchange
    return system.fitted(request.system) if exchanges is None else system.fitted(request.system, exchanges)


def entry(one: Option, second: Option | None, curve: Curve) -> dict[str, Any]:
    """Describe an option, with its reason."""
    return one.json() | {"binding": plan.binding(one, curve), "why": plan.why(one, second, curve)}


def refusals(found: list[Option], ranked: list[Option], curve: Curve) -> list[str]:
    """Say why there is no plan."""
    if not found and not any(curve.means.reached >= FAILS):
        return ["at no global batch did most runs reach the target: train longer, or with other learning rates"]
    if not found:
        return [
            "no global batch of the one table can be shared by workers of the other at a batch that was timed:"
            " measure both at common batches"
        ]
    if not ranked:
        fastest, cheapest = min(one.seconds for one in found), min(one.worker_seconds for one in found)
        return [
            f"nothing keeps what was asked: the fastest takes {fastest:,.4g} s,"
            f" the cheapest {cheapest:,.4g} worker-seconds"
        ]
    return []


def places(timed: System, more: tuple[Place, ...]) -> list[Place]:
    """Return the places measured, and those asked for."""
    rows = timed.rows[["nodes", "workers"]].drop_duplicates().astype(int)
    return sorted({*more, *(Place(nodes, workers) for nodes, workers in rows.itertuples(index=False))})


def system_part(timed: System, more: tuple[Place, ...]) -> dict[str, Any]:
    """Predict step times at every row, and at every place asked for with every batch timed."""
    rows = timed.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    asked = {(*one, batch) for one in more for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | asked), columns=["nodes", "workers", "batch"])
    at = Places.of(points)
    values, (low, high) = timed.seconds(at), np.quantile(timed.sampled(at), COVERED, axis=0)
    predictions, gaps = [], []
    for i, point in enumerate(points.itertuples(index=False, name=None)):
        gap = timed.missing(*point) if point not in measured else None
        gaps += [gap] if gap else []
        seconds = [None] * 3 if gap else [float(values[i]), float(low[i]), float(high[i])]
        numbers = dict(zip(("seconds", "low", "high"), seconds, strict=True))
        predictions.append({**dict(zip(points.columns, point, strict=True)), **numbers, "measured": point in measured})
    gaps += [] if timed.identifiable else lacking(timed)
    return {
        "identifiable": timed.identifiable and not gaps,
        "missing": sorted(set(gaps)),
        "parameters": timed.parameters,
        "links": {level: link(timed, level) for level in LEVELS if f"{level}_volume" in timed.parameters},
        "form": "two rings" if timed.form.two_rings else "ring",
        "error": timed.error,
        "predictions": predictions,
    }


def link(timed: System, level: str) -> dict[str, Any]:
    """Describe what joins workers: seconds a message, and bytes a second where it is known how many were sent."""
    found = {}
    draws = pd.DataFrame([*timed.draws, timed.parameters])
    if (alpha := f"{level}_alpha") in draws:
        found["alpha_seconds"] = interval(draws[alpha])
    if timed.gradient_bytes:
        found["bytes_a_second"] = interval(timed.gradient_bytes / draws[f"{level}_volume"])
    return found


def interval(draws: "pd.Series[float]") -> dict[str, float]:
    """Return the last of them, with the interval of the others."""
    low, high = np.quantile(draws.iloc[:-1], COVERED)
    return {"value": float(draws.iloc[-1]), "low": float(low), "high": float(high)}


def lacking(timed: System) -> list[str]:
    """List the rows that would tell of larger places than those measured."""
    rows, batch = timed.rows, int(timed.rows.batch.min())
    found = [] if timed.form.batch else ["rows of a second batch per worker"]
    for _, here in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = timed.missing(int(here.nodes.max()), 2 * int(here.workers.max()), batch)
        found += [gap] if gap else []
    return found


def statistical_part(curve: Curve, more: tuple[int, ...]) -> dict[str, Any]:
    """Predict examples to the target at every batch measured and every one asked for."""
    predictions = []
    for batch in sorted({*map(int, curve.means.index), *more}):
        examples, drawn = curve.examples(batch), curve.sampled(batch)
        low, high = (None, None) if drawn is None else map(float, np.quantile(drawn, COVERED))
        predictions.append(
            {"global_batch": batch, "examples": examples, "low": low, "high": high, "lr": curve.lr(batch)}
        )
    return {
        "identifiable": curve.identifiable,
        "critical_batch": spanned(curve.critical_batch) if curve.identifiable else None,
        "min_examples": spanned(curve.min_examples),
        "left_out": [*map(int, curve.left_out)],
        "predictions": predictions,
    }


def spanned(values: tuple[float, float, float] | None) -> dict[str, float] | None:
    """Return a value with its interval."""
    return None if values is None else dict(zip(("value", "low", "high"), values, strict=True))
