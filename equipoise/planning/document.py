"""Contents of plan.json: the fits of what was measured, their predictions, and the plan that follows from them."""

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
    """Measurements to plan with, settings to predict, and limits that the plan must keep."""

    system: pd.DataFrame | None = None
    """step times: rows of nodes, workers, batch and seconds"""
    exchange: pd.DataFrame | None = None
    """exchanges timed without training, with their share of the gradient's bytes"""
    statistical: pd.DataFrame | None = None
    """training runs: rows of global_batch, lr, seed, examples and reached"""
    cluster_shapes: tuple[ClusterShape, ...] = ()
    """cluster shapes to predict and to plan for in addition to the measured ones"""
    global_batches: tuple[int, ...] = ()
    """global batches to predict and to plan for in addition to the measured ones"""
    deadline_seconds: float | None = None
    """longest time to the target, in seconds"""
    budget_seconds: float | None = None
    """worker-seconds that may be spent"""


def read_request(
    *, system: Path | None = None, exchange: Path | None = None, statistical: Path | None = None
) -> PlanRequest:
    """Read the tables of measurements whose paths are given."""
    steps = read_step_times(system) if system else None
    exchanges = read_exchange_times(exchange, steps) if exchange and steps is not None else None
    runs = read_examples_to_target(statistical) if statistical else None
    return PlanRequest(system=steps, exchange=exchanges, statistical=runs)


def build_plan_document(request: PlanRequest) -> dict[str, Any]:
    """Build the contents of plan.json from measurements and limits."""
    extra_shapes = request.cluster_shapes
    step_fit = fit_step_times(request)
    curve = None if request.statistical is None else fit_examples_curve(request.statistical)
    document: dict[str, Any] = {
        "schema": 1,
        "plan": None,
        "runner_up": None,
        "front": [],
        "options": [],
        "knee": None,
        "system": step_fit and build_system_part(step_fit, extra_shapes),
        "statistical": curve and build_statistical_part(curve, request.global_batches),
        "warnings": [],
    }
    if not step_fit or not curve:
        missing = "--statistical" if step_fit else "--system"
        return document | {"warnings": [f"no {missing} was given: the time to the target cannot be predicted"]}
    global_batches = [*map(int, curve.batch_summary.index), *request.global_batches]
    options = enumerate_options(step_fit, curve, list_cluster_shapes(step_fit, extra_shapes), global_batches)
    ranked = rank_options(options, request.deadline_seconds, request.budget_seconds)
    best, runner_up = (ranked[0], find_runner_up(ranked)) if ranked else (None, None)
    front = find_pareto_front(options)
    knee = find_knee(front)
    return document | {
        "plan": best and build_plan_entry(best, runner_up, curve),
        "runner_up": runner_up and build_plan_entry(runner_up, None, curve),
        "front": [option.to_json() for option in front],
        "options": [option.to_json() | {"binding": find_bottleneck(option, curve)} for option in options],
        "knee": knee and knee.to_json(),
        "warnings": explain_no_plan(options, ranked, curve) + collect_warnings(best, step_fit, curve),
    }


def fit_step_times(request: PlanRequest) -> StepTimeFit | None:
    """Fit the step times, together with the separately timed exchanges if there are any; None without step times."""
    if request.system is None:
        return None
    exchanges = request.exchange
    return fit_step_time(request.system) if exchanges is None else fit_step_time(request.system, exchanges)


def build_plan_entry(option: PlanOption, runner_up: PlanOption | None, curve: ExamplesCurve) -> dict[str, Any]:
    """Build the entry of one option in plan.json, with its bottleneck and the reason for it."""
    return option.to_json() | {
        "binding": find_bottleneck(option, curve),
        "why": explain_option(option, runner_up, curve),
    }


def explain_no_plan(all_options: list[PlanOption], ranked: list[PlanOption], curve: ExamplesCurve) -> list[str]:
    """Return one sentence on why there is no plan, or an empty list if there is one."""
    if not all_options and not any(curve.batch_summary.reached >= MIN_SUCCESS_RATE):
        return ["at no global batch did most runs reach the target: train longer, or with other learning rates"]
    if not all_options:
        return [
            "no global batch of the training runs can be split over the timed workers into a timed batch per worker:"
            " measure both tables at common batches"
        ]
    if not ranked:
        fastest, cheapest = (
            min(option.seconds for option in all_options),
            min(option.worker_seconds for option in all_options),
        )
        return [
            f"no plan is within the given limits: the fastest takes {fastest:,.4g} s,"
            f" the cheapest {cheapest:,.4g} worker-seconds"
        ]
    return []


def list_cluster_shapes(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> list[ClusterShape]:
    """Return the measured cluster shapes and the requested ones, sorted."""
    rows = step_time_fit.rows[["nodes", "workers"]].drop_duplicates().astype(int)
    return sorted({*extra_shapes, *(ClusterShape(nodes, workers) for nodes, workers in rows.itertuples(index=False))})


def build_system_part(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> dict[str, Any]:
    """Build the step-time part of plan.json: predictions at each row, and at each extra shape with each timed batch."""
    rows = step_time_fit.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    requested = {(*shape, batch) for shape in extra_shapes for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | requested), columns=["nodes", "workers", "batch"])
    settings = StepSettings.from_table(points)
    values = step_time_fit.fitted_seconds(settings)
    low, high = np.quantile(step_time_fit.sample_seconds(settings), INTERVAL_QUANTILES, axis=0)
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
    """Return the latency in seconds per message and the bytes per second of one network level, as far as known."""
    link = {}
    draws = pd.DataFrame([*step_time_fit.parameter_draws, step_time_fit.parameters])
    if (alpha := f"{level}_alpha") in draws:
        link["alpha_seconds"] = summarize_draws(draws[alpha])
    if step_time_fit.gradient_bytes:
        link["bytes_a_second"] = summarize_draws(step_time_fit.gradient_bytes / draws[f"{level}_volume"])
    return link


def summarize_draws(draws: "pd.Series[float]") -> dict[str, float]:
    """Return the last value, which is the estimate, with the interval of the draws before it."""
    low, high = np.quantile(draws.iloc[:-1], INTERVAL_QUANTILES)
    return {"value": float(draws.iloc[-1]), "low": float(low), "high": float(high)}


def describe_missing_measurements(step_time_fit: StepTimeFit) -> list[str]:
    """List the timings that predictions for larger clusters than the measured ones still need."""
    rows, batch = step_time_fit.rows, int(step_time_fit.rows.batch.min())
    gaps = [] if step_time_fit.form.has_batch_term else ["rows of a second batch per worker"]
    for _, level_rows in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = step_time_fit.missing_measurements(int(level_rows.nodes.max()), 2 * int(level_rows.workers.max()), batch)
        gaps += [gap] if gap else []
    return gaps


def build_statistical_part(curve: ExamplesCurve, extra_batches: tuple[int, ...]) -> dict[str, Any]:
    """Build the part of plan.json on examples to the target: predictions at each measured and each extra batch."""
    predictions = []
    for batch in sorted({*map(int, curve.batch_summary.index), *extra_batches}):
        examples, draws = curve.examples_at(batch), curve.sample_examples(batch)
        low, high = (None, None) if draws is None else map(float, np.quantile(draws, INTERVAL_QUANTILES))
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
    """Return a value and its interval as a dictionary, or None without one."""
    return None if values is None else dict(zip(("value", "low", "high"), values, strict=True))
