"""Build a plan from measurements: fit them, predict settings, and choose among these."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.planning.document import (
    ExamplesPrediction,
    ExamplesSection,
    NetworkLink,
    PlanDocument,
    PlanEntry,
    PlanOptionEntry,
    PredictedSetting,
    StepPrediction,
    StepTimePrediction,
    StepTimeSection,
)
from equipoise.planning.examples_to_target import MIN_SUCCESS_RATE, ExamplesCurve, fit_examples_curve
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.measurements import read_examples_to_target, read_exchange_times, read_step_times
from equipoise.planning.plan import (
    COMBINED_DRAWS,
    ClusterShape,
    PlanOption,
    collect_warnings,
    enumerate_options,
    explain_option,
    find_bottleneck,
    find_knee,
    find_pareto_front,
    find_runner_up,
    list_candidate_batches,
    put_measured_first,
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
    budget_worker_seconds: float | None = None
    """worker-seconds that may be spent"""
    excluded_settings: frozenset[tuple[int, float]] = frozenset()
    """global batches and learning rates not to plan with, because a run missed the target"""


def read_request(
    *, system: Path | None = None, exchange: Path | None = None, statistical: Path | None = None
) -> PlanRequest:
    """Read the tables of measurements whose paths are given."""
    steps = read_step_times(system) if system else None
    exchanges = read_exchange_times(exchange, steps) if exchange and steps is not None else None
    runs = read_examples_to_target(statistical) if statistical else None
    return PlanRequest(system=steps, exchange=exchanges, statistical=runs)


def build_plan_document(request: PlanRequest) -> PlanDocument:
    """Build the contents of plan.json from measurements and limits."""
    step_fit = fit_step_times(request)
    curve = None if request.statistical is None else fit_examples_curve(request.statistical)
    fits = PlanDocument(
        plan=None,
        front=(),
        system=build_system_section(step_fit, request.cluster_shapes) if step_fit else None,
        statistical=build_statistical_section(curve, request.global_batches) if curve else None,
        warnings=(),
    )
    if not step_fit or not curve:
        missing = "--statistical" if step_fit else "--system"
        return replace(fits, warnings=(f"no {missing} was given: the time to the target cannot be predicted",))
    shapes = list_cluster_shapes(step_fit, request.cluster_shapes)
    global_batches = list_candidate_batches(step_fit, curve) | {*request.global_batches}
    all_options = enumerate_options(step_fit, curve, shapes, global_batches)
    options = [option for option in all_options if (option.global_batch, option.lr) not in request.excluded_settings]
    ranked = rank_options(options, request.deadline_seconds, request.budget_worker_seconds)
    ranked = put_measured_first(ranked, by_cost=request.deadline_seconds is not None)
    best, runner_up = (ranked[0], find_runner_up(ranked)) if ranked else (None, None)
    front = find_pareto_front(options)
    knee = find_knee(front)
    return replace(
        fits,
        statistical=build_statistical_section(curve, global_batches),
        plan=build_plan_entry(best, runner_up, curve) if best else None,
        runner_up=build_plan_entry(runner_up, None, curve) if runner_up else None,
        front=tuple(map(build_predicted_setting, front)),
        options=tuple(build_option_entry(option, curve) for option in options),
        knee=build_predicted_setting(knee) if knee else None,
        warnings=(
            *explain_no_plan(all_options, options, ranked, curve),
            *collect_warnings(best, step_fit, curve),
        ),
    )


def fit_step_times(request: PlanRequest) -> StepTimeFit | None:
    """Fit the step times, together with the separately timed exchanges if there are any; None without step times."""
    if request.system is None:
        return None
    exchanges = request.exchange
    return fit_step_time(request.system) if exchanges is None else fit_step_time(request.system, exchanges)


def build_predicted_setting(option: PlanOption) -> PredictedSetting:
    """Build the entry of an option; its interval is that of a single run."""
    noise = np.random.default_rng(option.global_batch).standard_t(option.degrees_of_freedom, COMBINED_DRAWS)
    low, high = np.quantile(option.seconds_draws * np.exp(option.run_log_sd * noise), INTERVAL_QUANTILES)
    compute, exchange = option.component_seconds
    return PredictedSetting(
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        global_batch=option.global_batch,
        lr=option.lr,
        seconds=IntervalEstimate(value=option.seconds, low=float(low), high=float(high)),
        worker_seconds=option.worker_seconds,
        step=StepPrediction(seconds=option.step_seconds, compute=compute, exchange=exchange),
        examples=option.examples,
        measured=option.measured,
    )


def build_option_entry(option: PlanOption, curve: ExamplesCurve) -> PlanOptionEntry:
    """Build the entry of an option with its bottleneck."""
    return PlanOptionEntry(**vars(build_predicted_setting(option)), binding=find_bottleneck(option, curve))


def build_plan_entry(option: PlanOption, runner_up: PlanOption | None, curve: ExamplesCurve) -> PlanEntry:
    """Build the entry of an option with its bottleneck and the reason for it."""
    return PlanEntry(
        **vars(build_option_entry(option, curve)),
        why=explain_option(option, runner_up, curve),
        runs=curve.count_runs(option.global_batch),
    )


def explain_no_plan(
    all_options: list[PlanOption], options: list[PlanOption], ranked: list[PlanOption], curve: ExamplesCurve
) -> list[str]:
    """Return one sentence on why there is no plan, or an empty list if there is one.

    `options` are those of `all_options` that no run has refuted, `ranked` those of them within the limits.
    """
    if all_options and not options:
        return ["with every setting that was measured a training run missed the target: train longer, or sweep again"]
    if not all_options and not any(curve.batch_summary.reached >= MIN_SUCCESS_RATE):
        return ["at no global batch did most runs reach the target: train longer, or with other learning rates"]
    if not all_options:
        return [
            "no global batch of the training runs can be split over the timed workers into a timed batch per worker:"
            " measure both tables at common batches"
        ]
    if not ranked:
        fastest, cheapest = (
            min(option.seconds for option in options),
            min(option.worker_seconds for option in options),
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


def build_system_section(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> StepTimeSection:
    """Build the section on step times: predictions at each row, and at each extra shape with each timed batch."""
    predictions, gaps = predict_step_times(step_time_fit, extra_shapes)
    gaps += [] if step_time_fit.identifiable else describe_missing_measurements(step_time_fit)
    return StepTimeSection(
        identifiable=step_time_fit.identifiable and not gaps,
        missing=tuple(sorted(set(gaps))),
        parameters={name: float(value) for name, value in step_time_fit.parameters.items()},
        links={
            level: fit_network_link(step_time_fit, level)
            for level in NETWORK_LEVELS
            if f"{level}_volume" in step_time_fit.parameters
        },
        form="two rings" if step_time_fit.form.two_rings else "ring",
        error=float(step_time_fit.relative_error),
        predictions=tuple(predictions),
    )


def predict_step_times(
    step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]
) -> tuple[list[StepTimePrediction], list[str]]:
    """Predict the step times of all rows and extra shapes; return also the measurements that some of them need."""
    rows = step_time_fit.rows[["nodes", "workers", "batch"]].astype(int)
    measured = set(rows.itertuples(index=False, name=None))
    requested = {(*shape, batch) for shape in extra_shapes for batch in rows.batch.unique().tolist()}
    points = pd.DataFrame(sorted(measured | requested), columns=["nodes", "workers", "batch"])
    settings = StepSettings.from_table(points)
    values = step_time_fit.fitted_seconds(settings)
    bounds = np.quantile(step_time_fit.sample_seconds(settings), INTERVAL_QUANTILES, axis=0)
    predictions, gaps = [], []
    for point, *numbers in zip(points.itertuples(index=False, name=None), values, *bounds, strict=True):
        gap = step_time_fit.missing_measurements(*point) if point not in measured else None
        gaps += [gap] if gap else []
        seconds, low, high = (None if gap else float(number) for number in numbers)
        nodes, workers, batch = point
        predictions.append(
            StepTimePrediction(
                nodes=nodes,
                workers=workers,
                batch=batch,
                seconds=seconds,
                low=low,
                high=high,
                measured=point in measured,
            )
        )
    return predictions, gaps


def fit_network_link(step_time_fit: StepTimeFit, level: str) -> NetworkLink:
    """Estimate the delay and the rate of one network level, as far as they are known."""
    draws = pd.DataFrame([*step_time_fit.parameter_draws, step_time_fit.parameters])
    alpha, size = f"{level}_alpha", step_time_fit.gradient_bytes
    return NetworkLink(
        alpha_seconds=summarize_draws(draws[alpha]) if alpha in draws else None,
        bytes_a_second=summarize_draws(size / draws[f"{level}_volume"]) if size else None,
    )


def summarize_draws(draws: "pd.Series[float]") -> IntervalEstimate:
    """Return the last value, which is the estimate, with the interval of the draws before it."""
    low, high = np.quantile(draws.iloc[:-1], INTERVAL_QUANTILES)
    return IntervalEstimate(value=float(draws.iloc[-1]), low=float(low), high=float(high))


def describe_missing_measurements(step_time_fit: StepTimeFit) -> list[str]:
    """List the timings that predictions for larger clusters than the measured ones still need."""
    rows, batch = step_time_fit.rows, int(step_time_fit.rows.batch.min())
    gaps = [] if step_time_fit.form.has_batch_term else ["rows of a second batch per worker"]
    for _, level_rows in rows[rows.workers > 1].groupby(rows.nodes > 1):
        gap = step_time_fit.missing_measurements(int(level_rows.nodes.max()), 2 * int(level_rows.workers.max()), batch)
        gaps += [gap] if gap else []
    return gaps


def build_statistical_section(curve: ExamplesCurve, extra_batches: Iterable[int]) -> ExamplesSection:
    """Build the section on examples to the target: predictions at each measured and each extra batch."""
    batches = sorted({*map(int, curve.batch_summary.index), *extra_batches})
    return ExamplesSection(
        identifiable=curve.identifiable,
        critical_batch=interval_to_estimate(curve.critical_batch) if curve.identifiable else None,
        min_examples=interval_to_estimate(curve.min_examples),
        left_out=tuple(map(int, curve.left_out_batches)),
        predictions=tuple(predict_examples(curve, batch) for batch in batches),
    )


def predict_examples(curve: ExamplesCurve, global_batch: int) -> ExamplesPrediction:
    """Predict the examples to the target and the learning rate at a global batch."""
    draws = curve.sample_examples(global_batch)
    low, high = (None, None) if draws is None else map(float, np.quantile(draws, INTERVAL_QUANTILES))
    return ExamplesPrediction(
        global_batch=global_batch,
        examples=curve.examples_at(global_batch),
        low=low,
        high=high,
        lr=curve.lr_at(global_batch),
    )


def interval_to_estimate(values: tuple[float, float, float] | None) -> IntervalEstimate | None:
    """Return a value and its interval as an estimate, or None without one."""
    return None if values is None else IntervalEstimate(**dict(zip(("value", "low", "high"), values, strict=True)))
