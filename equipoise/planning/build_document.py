"""Build a plan from measurements: fit them, predict settings, and choose among these."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.formatting import format_number
from equipoise.planning.document import (
    PlanDocument,
    PlanEntry,
    PlanOptionEntry,
    PredictedSetting,
    StepPrediction,
)
from equipoise.planning.examples_to_target import MIN_SUCCESS_RATE, ExamplesCurve, fit_examples_curve
from equipoise.planning.exchanges.exchange_columns import read_runs_by_exchange, read_steps_by_exchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.measurements import read_exchange_times, read_target_crossings
from equipoise.planning.memory.fitting_options import keep_fitting_options
from equipoise.planning.parameter_servers.worker_speeds import describe_speeds, select_worker_speeds
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
from equipoise.planning.replanning.fit_memory import FitMemory, digest_table, recall_result
from equipoise.planning.replanning.link_change import LinkChange, move_to_links
from equipoise.planning.sections.examples_section import build_statistical_section
from equipoise.planning.sections.step_time_section import build_system_section
from equipoise.planning.sections.step_time_types import StepTimeSection
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES, StepTimeFit, fit_step_time
from equipoise.planning.targets.target_plans import (
    build_batch_schedule,
    build_target_plan,
    find_hardest_target,
    fit_easier_targets,
)


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
    memory_bytes: float | None = None
    """most bytes that a worker may use"""
    excluded_settings: frozenset[tuple[int, float]] = frozenset()
    """global batches and learning rates not to plan with, because a run missed the target"""
    targets: pd.DataFrame | None = None
    """the same runs to several targets: rows of target and the columns of `statistical`, the easiest target first; the
    last target is that of `statistical`"""
    max_nodes: int | None = None
    """most nodes to plan for; None for as many as were measured or requested"""
    links: LinkChange | None = None
    """slowest links to plan for; None for those that were measured"""
    memory: FitMemory | None = field(default=None, repr=False)
    """fits of earlier plans from the same tables"""


def read_request(
    *,
    system: Path | None = None,
    exchange: Path | None = None,
    statistical: Path | None = None,
    targets: Path | None = None,
) -> PlanRequest:
    """Read the tables of measurements whose paths are given."""
    steps = read_steps_by_exchange(system) if system else None
    exchanges = read_exchange_times(exchange, steps) if exchange and steps is not None else None
    runs = read_runs_by_exchange(statistical) if statistical else None
    crossings = read_target_crossings(targets) if targets else None
    return PlanRequest(system=steps, exchange=exchanges, statistical=runs, targets=crossings)


def build_plan_document(
    request: PlanRequest, step_fit: StepTimeFit | None = None, curve: ExamplesCurve | None = None
) -> PlanDocument:
    """Build the contents of plan.json from measurements and limits; fits that are known need not be made again."""
    step_fit = step_fit or fit_step_times(request)
    if curve is None and request.statistical is not None:
        curve = fit_runs(request, request.statistical)
    fits = PlanDocument(
        plan=None,
        front=(),
        system=predict_steps(request, step_fit) if step_fit else None,
        statistical=build_statistical_section(curve, request.global_batches) if curve else None,
        warnings=(),
    )
    fits = add_worker_speeds(fits, request)
    if not step_fit or not curve:
        missing = "--statistical" if step_fit else "--system"
        gap = f"no {missing} was given: the time to the target cannot be predicted"
        return replace(fits, warnings=(*fits.warnings, gap))
    document = add_worker_speeds(complete_plan(fits, request, step_fit, curve), request)
    if request.targets is None:
        return document
    curves = [*fit_easier_targets(request.targets), (find_hardest_target(request.targets), curve)]
    plans = [complete_plan(fits, request, step_fit, easier_curve) for _, easier_curve in curves[:-1]]
    return replace(
        document,
        targets=tuple(
            build_target_plan(target, target_curve, plan)
            for (target, target_curve), plan in zip(curves, [*plans, document], strict=True)
        ),
        schedule=build_batch_schedule(curves, document),
    )


def add_worker_speeds(document: PlanDocument, request: PlanRequest) -> PlanDocument:
    """Return the document with what unequal workers cost at its setting, and a sentence that says so."""
    plan = document.plan
    setting = (plan.nodes, plan.workers, plan.batch) if plan else None
    speeds = select_worker_speeds(request.system, setting)
    if speeds is None:
        return document
    return replace(document, worker_speeds=speeds, warnings=(describe_speeds(speeds), *document.warnings))


def complete_plan(
    fits: PlanDocument, request: PlanRequest, step_fit: StepTimeFit, curve: ExamplesCurve
) -> PlanDocument:
    """Return a document of the fits with the plan, its alternatives and warnings."""
    shapes = list_cluster_shapes(step_fit, request.cluster_shapes)
    global_batches = list_candidate_batches(step_fit, curve) | {*request.global_batches}
    if request.max_nodes is not None:
        shapes = [shape for shape in shapes if shape.nodes <= request.max_nodes]
    known_options = recall_result(
        request.memory,
        ("options", *shapes, *sorted(global_batches)),
        (step_fit, curve),
        lambda: enumerate_options(step_fit, curve, shapes, global_batches),
    )
    all_options, memory_warnings = keep_fitting_options(known_options, request.system, request.memory_bytes)
    options = [option for option in all_options if (option.global_batch, option.lr) not in request.excluded_settings]
    ranked = rank_options(options, request.deadline_seconds, request.budget_worker_seconds)
    ranked = put_measured_first(ranked, by_cost=request.deadline_seconds is not None)
    best, runner_up = (ranked[0], find_runner_up(ranked)) if ranked else (None, None)
    front = find_pareto_front(options)
    knee = find_knee(front)
    return replace(
        fits,
        statistical=recall_result(
            request.memory,
            ("examples section", *sorted(global_batches)),
            (curve,),
            lambda: build_statistical_section(curve, global_batches),
        ),
        plan=build_plan_entry(best, runner_up, curve) if best else None,
        runner_up=build_plan_entry(runner_up, None, curve) if runner_up else None,
        front=tuple(map(build_predicted_setting, front)),
        options=tuple(
            recall_result(request.memory, "entry", (option, curve), partial(build_option_entry, option, curve))
            for option in options
        ),
        knee=build_predicted_setting(knee) if knee else None,
        warnings=(
            *memory_warnings,
            *(explain_no_plan(all_options, options, ranked, curve) if all_options or not known_options else ()),
            *collect_warnings(best, step_fit, curve),
        ),
    )


def fit_step_times(request: PlanRequest) -> StepTimeFit | None:
    """Fit the step times, together with the separately timed exchanges if there are any; None without step times.

    The fit is that of the links to plan for, if the request has other ones than those that were measured.
    """
    steps, exchanges, links = request.system, request.exchange, request.links
    if steps is None:
        return None
    fit = recall_result(
        request.memory,
        ("step times", digest_table(steps), digest_table(exchanges)) if request.memory else (),
        (),
        lambda: fit_step_time(steps) if exchanges is None else fit_step_time(steps, exchanges),
    )
    if links is None or (steps.workers == 1).all():
        return fit
    return recall_result(request.memory, ("links", links), (fit,), lambda: move_to_links(fit, links))


def fit_runs(request: PlanRequest, runs: pd.DataFrame) -> ExamplesCurve:
    """Fit the examples to the target to training runs, unless the request remembers the fit."""
    key = ("runs", digest_table(runs)) if request.memory else ()
    return recall_result(request.memory, key, (), lambda: fit_examples_curve(runs))


def predict_steps(request: PlanRequest, step_fit: StepTimeFit) -> StepTimeSection:
    """Return the section on step times of a fit, unless the request remembers it."""
    shapes = request.cluster_shapes
    return recall_result(
        request.memory, ("step section", *shapes), (step_fit,), lambda: build_system_section(step_fit, shapes)
    )


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
            f"no plan is within the given limits: the fastest takes {format_number(fastest, 4)} s,"
            f" the cheapest {format_number(cheapest, 4)} worker-seconds"
        ]
    return []


def list_cluster_shapes(step_time_fit: StepTimeFit, extra_shapes: tuple[ClusterShape, ...]) -> list[ClusterShape]:
    """Return the measured cluster shapes and the requested ones, sorted."""
    rows = step_time_fit.rows[["nodes", "workers"]].drop_duplicates().astype(int)
    return sorted({*extra_shapes, *(ClusterShape(nodes, workers) for nodes, workers in rows.itertuples(index=False))})
