"""The contents of plan.json: what was measured, what it foretells, and the plan that follows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import MIN_SUCCESS_RATE, ExamplesCurve, fit_examples_curve
from equipoise.planning.measurements import read_examples_to_target, read_exchange_times, read_step_times
from equipoise.planning.plan import (
    ClusterShape,
    PlanOption,
    collect_warnings,
    enumerate_options,
    explain_option,
    find_bottleneck,
    find_knee,
    find_pareto_front,
    find_runner_up,
    rank_options,
)
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES, StepTimeFit, fit_step_time
from equipoise.planning.step_time_model import NETWORK_LEVELS, StepSettings


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRequest:
    """Measurements to plan with, and what the plan must keep."""

    system: pd.DataFrame | None = None
    """rows of nodes, workers, batch and seconds of a step"""
    exchange: pd.DataFrame | None = None
    """rows of exchanges timed by themselves, with their share of the gradient's bytes"""
    statistical: pd.DataFrame | None = None
    """rows of global_batch, lr, seed, examples and reached"""
    places: tuple[ClusterShape, ...] = ()
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
    steps = read_step_times(system) if system else None
    exchanges = read_exchange_times(exchange, steps) if exchange and steps is not None else None
    runs = read_examples_to_target(statistical) if statistical else None
    return PlanRequest(system=steps, exchange=exchanges, statistical=runs)


def build_plan_document(request: PlanRequest) -> dict[str, Any]:
    """Build the contents of plan.json."""
    at = request.places
    timed = fit_step_times(request)
    curve = None if request.statistical is None else fit_examples_curve(request.statistical)
    facts: dict[str, Any] = {
        "schema": 1,
        "plan": None,
        "runner_up": None,
        "front": [],
        "options": [],
        "knee": None,
        "system": timed and build_system_part(timed, at),
        "statistical": curve and build_statistical_part(curve, request.batches),
        "warnings": [],
    }
    if not timed or not curve:
        missing = "--statistical" if timed else "--system"
        return facts | {"warnings": [f"no {missing} was given: the time to the target cannot be told"]}
    found = enumerate_options(
        timed, curve, list_cluster_shapes(timed, at), [*map(int, curve.batch_summary.index), *request.batches]
    )
    ranked = rank_options(found, request.deadline_seconds, request.budget_seconds)
    first, second = (ranked[0], find_runner_up(ranked)) if ranked else (None, None)
    facts |= {
        "plan": first and build_plan_entry(first, second, curve),
        "runner_up": second and build_plan_entry(second, None, curve),
    }
    along = find_pareto_front(found)
    bend = find_knee(along)
    facts |= {"front": [one.to_json() for one in along], "knee": bend and bend.to_json()}
    facts["options"] = [one.to_json() | {"binding": find_bottleneck(one, curve)} for one in found]
    facts["warnings"] = explain_no_plan(found, ranked, curve) + collect_warnings(first, timed, curve)
    return facts


def fit_step_times(request: PlanRequest) -> StepTimeFit | None:
    """Fit the step times, with the exchanges if they were timed by themselves."""
    if request.system is None:
        return None
    exchanges = request.exchange
    return fit_step_time(request.system) if exchanges is None else fit_step_time(request.system, exchanges)


def build_plan_entry(option: PlanOption, runner_up: PlanOption | None, curve: ExamplesCurve) -> dict[str, Any]:
    """Describe an option, with its reason."""
    return option.to_json() | {
        "binding": find_bottleneck(option, curve),
        "why": explain_option(option, runner_up, curve),
    }


def explain_no_plan(all_options: list[PlanOption], ranked: list[PlanOption], curve: ExamplesCurve) -> list[str]:
    """Say why there is no plan."""
    if not all_options and not any(curve.batch_summary.reached >= MIN_SUCCESS_RATE):
        return ["at no global batch did most runs reach the target: train longer, or with other learning rates"]
    if not all_options:
        return [
            "no global batch of the one table can be shared by workers of the other at a batch that was timed:"
            " measure both at common batches"
        ]
    if not ranked:
        fastest, cheapest = min(one.seconds for one in all_options), min(one.worker_seconds for one in all_options)
        return [
            f"nothing keeps what was asked: the fastest takes {fastest:,.4g} s,"
            f" the cheapest {cheapest:,.4g} worker-seconds"
        ]
    return []


def list_cluster_shapes(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> list[ClusterShape]:
    """Return the places measured, and those asked for."""
    rows = step_time_fit.rows[["nodes", "workers"]].drop_duplicates().astype(int)
    return sorted({*extra_shapes, *(ClusterShape(nodes, workers) for nodes, workers in rows.itertuples(index=False))})


def build_system_part(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> dict[str, Any]:
    """Predict step times at every row, and at every place asked for with every batch timed."""
    rows = step_time_fit.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    asked = {(*one, batch) for one in extra_shapes for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | asked), columns=["nodes", "workers", "batch"])
    at = StepSettings.from_table(points)
    values, (low, high) = (
        step_time_fit.fitted_seconds(at),
        np.quantile(step_time_fit.sample_seconds(at), INTERVAL_QUANTILES, axis=0),
    )
    predictions, gaps = [], []
    for i, point in enumerate(points.itertuples(index=False, name=None)):
        gap = step_time_fit.missing_measurements(*point) if point not in measured else None
        gaps += [gap] if gap else []
        seconds = [None] * 3 if gap else [float(values[i]), float(low[i]), float(high[i])]
        numbers = dict(zip(("seconds", "low", "high"), seconds, strict=True))
        predictions.append({**dict(zip(points.columns, point, strict=True)), **numbers, "measured": point in measured})
    gaps += [] if step_time_fit.identifiable else describe_missing_measurements(step_time_fit)
    return {
        "identifiable": step_time_fit.identifiable and not gaps,
        "missing": sorted(set(gaps)),
        "parameters": step_time_fit.parameters,
        "links": {
            level: estimate_link(step_time_fit, level)
            for level in NETWORK_LEVELS
            if f"{level}_volume" in step_time_fit.parameters
        },
        "form": "two rings" if step_time_fit.form.two_rings else "ring",
        "error": step_time_fit.relative_error,
        "predictions": predictions,
    }


def estimate_link(step_time_fit: StepTimeFit, level: str) -> dict[str, Any]:
    """Describe what joins workers: seconds a message, and bytes a second where it is known how many were sent."""
    found = {}
    draws = pd.DataFrame([*step_time_fit.parameter_draws, step_time_fit.parameters])
    if (alpha := f"{level}_alpha") in draws:
        found["alpha_seconds"] = summarize_draws(draws[alpha])
    if step_time_fit.gradient_bytes:
        found["bytes_a_second"] = summarize_draws(step_time_fit.gradient_bytes / draws[f"{level}_volume"])
    return found


def summarize_draws(draws: "pd.Series[float]") -> dict[str, float]:
    """Return the last of them, with the interval of the others."""
    low, high = np.quantile(draws.iloc[:-1], INTERVAL_QUANTILES)
    return {"value": float(draws.iloc[-1]), "low": float(low), "high": float(high)}


def describe_missing_measurements(step_time_fit: StepTimeFit) -> list[str]:
    """List the rows that would tell of larger places than those measured."""
    rows, batch = step_time_fit.rows, int(step_time_fit.rows.batch.min())
    found = [] if step_time_fit.form.has_batch_term else ["rows of a second batch per worker"]
    for _, here in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = step_time_fit.missing_measurements(int(here.nodes.max()), 2 * int(here.workers.max()), batch)
        found += [gap] if gap else []
    return found


def build_statistical_part(curve: ExamplesCurve, extra_batches: tuple[int, ...]) -> dict[str, Any]:
    """Predict examples to the target at every batch measured and every one asked for."""
    predictions = []
    for batch in sorted({*map(int, curve.batch_summary.index), *extra_batches}):
        examples, drawn = curve.examples_at(batch), curve.sample_examples(batch)
        low, high = (None, None) if drawn is None else map(float, np.quantile(drawn, INTERVAL_QUANTILES))
        predictions.append(
            {"global_batch": batch, "examples": examples, "low": low, "high": high, "lr": curve.lr_at(batch)}
        )
    return {
        "identifiable": curve.identifiable,
        "critical_batch": interval_to_dict(curve.critical_batch) if curve.identifiable else None,
        "min_examples": interval_to_dict(curve.min_examples),
        "left_out": [*map(int, curve.left_out_batches)],
        "predictions": predictions,
    }


def interval_to_dict(values: tuple[float, float, float] | None) -> dict[str, float] | None:
    """Return a value with its interval."""
    return None if values is None else dict(zip(("value", "low", "high"), values, strict=True))
