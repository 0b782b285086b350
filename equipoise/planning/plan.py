"""Plans: time to the target, and its cost, over workers and batch.

    seconds = E(B) / B * T(nodes, workers, batch),   B = workers * batch

Time and cost (worker-seconds) conflict, so the answer is the Pareto front between them, its knee,
and the best option within the given limits: the fastest, the cheapest within a deadline, or the
fastest within a budget.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from equipoise.formatting import format_number, pluralize
from equipoise.planning.bottleneck.bottleneck_text import BOTTLENECK_TEXT
from equipoise.planning.devices.pareto import find_front_indices, find_knee_index
from equipoise.planning.document import Bottleneck
from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings, compute_and_exchange_seconds
from equipoise.type_aliases import FloatArray

MIN_PREDICTED_PROBABILITY = 0.9  # share of draws in which a predicted option must be faster than all measured ones
MIN_PLAN_RUNS = 3  # that reached the target with the plan's settings; with fewer it is preliminary
COMBINED_DRAWS = 400  # pairs of a draw of the step time and a draw of the examples


class ClusterShape(NamedTuple):
    """Number of nodes, and of workers on all nodes together."""

    nodes: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class PlanOption:
    """One setting that trains to the target, with its predicted time and cost."""

    nodes: int
    workers: int
    batch: int
    lr: float | None
    examples: float
    step_seconds: float
    """seconds per optimizer step"""
    component_seconds: tuple[float, float]
    """seconds of computing and of the exchange per step, each without overlap"""
    seconds_draws: FloatArray = field(repr=False)
    """seconds to the target, averaged over seeds, in each draw"""
    run_log_sd: float
    """standard deviation of a single run about that average, in log seconds"""
    degrees_of_freedom: float
    """degrees of freedom of `run_log_sd`"""
    measured: bool
    """true if the step time and the examples were both measured at this setting"""
    tells_exchange: bool = True
    """whether the step times tell computing from the exchange, as those of one worker do"""
    waits_for_data: bool = False
    """whether reading a batch takes longer than computing and exchanging it"""

    @property
    def global_batch(self) -> int:
        """Examples per optimizer step of all workers."""
        return self.workers * self.batch

    @property
    def seconds(self) -> float:
        """Seconds to the target."""
        return self.examples / self.global_batch * self.step_seconds

    @property
    def worker_seconds(self) -> float:
        """Cost: seconds to the target times workers."""
        return self.seconds * self.workers


def enumerate_options(
    step_fit: StepTimeFit, curve: ExamplesCurve, shapes: Iterable[ClusterShape], global_batches: Iterable[int]
) -> list[PlanOption]:
    """Build an option for each shape and each global batch that it can split evenly and both fits can predict."""
    low, high = step_fit.rows.batch.min(), step_fit.rows.batch.max()
    options = []
    for nodes, workers in sorted(set(shapes)):
        for global_batch in sorted(set(global_batches)):
            batch, remainder = divmod(global_batch, workers)
            if (
                remainder
                or not low <= batch <= high
                or step_fit.missing_measurements(nodes, workers, batch)
                or curve.missing_measurements(global_batch)
            ):
                continue
            options.append(build_option(step_fit, curve, ClusterShape(nodes, workers), batch))
    return options


def list_candidate_batches(step_fit: StepTimeFit, curve: ExamplesCurve) -> set[int]:
    """Return the global batches of the trials, and between those of the fit the timed ones and the half octaves."""
    trials = [int(batch) for batch in curve.batch_summary.index]
    fitted = [batch for batch in trials if batch not in curve.left_out_batches]
    low, high = min(fitted, default=0), max(fitted, default=0)
    timed = (step_fit.rows.workers * step_fit.rows.batch).astype(int)
    half_octaves = (factor << power for power in range(high.bit_length()) for factor in (2, 3))
    return {*trials, *(int(batch) for batch in (*timed, *half_octaves) if low < batch < high)}


def build_option(step_fit: StepTimeFit, curve: ExamplesCurve, shape: ClusterShape, batch: int) -> PlanOption:
    """Build the option of one setting, with its time to the target."""
    settings = StepSettings(*(np.array([value], float) for value in (*shape, batch)))
    global_batch = shape.workers * batch
    examples, example_draws = curve.examples_at(global_batch), curve.sample_examples(global_batch)
    if examples is None or example_draws is None:
        raise ValueError(
            f"cannot predict the examples to the target at a global batch of {global_batch}:"
            f" measure {curve.missing_measurements(global_batch)}"
        )
    seed_noise, freedom = curve.seed_noise_at(global_batch)
    rng = np.random.default_rng(global_batch)
    step_draws = rng.choice(step_fit.sample_seconds(settings)[:, 0], COMBINED_DRAWS)
    rows = step_fit.rows
    measured_rows = rows[(rows.nodes == shape.nodes) & (rows.workers == shape.workers) & (rows.batch == batch)]
    step = float(step_fit.shrunk_seconds(settings)[0])
    correction = step / float(step_fit.fitted_seconds(settings)[0])  # of the fit, by the measurement of this setting
    compute, exchange = (
        float(part[0]) * correction
        for part in compute_and_exchange_seconds(step_fit.form, step_fit.parameters, settings)
    )
    step_draws *= correction
    return PlanOption(
        nodes=shape.nodes,
        workers=shape.workers,
        batch=batch,
        lr=curve.lr_at(global_batch),
        examples=examples,
        step_seconds=step,
        component_seconds=(compute, exchange),
        seconds_draws=rng.choice(example_draws, COMBINED_DRAWS) / global_batch * step_draws,
        run_log_sd=float(np.hypot(seed_noise, step_fit.pace_sd)),
        degrees_of_freedom=freedom,
        measured=bool(len(measured_rows)) and global_batch in curve.batch_summary.index,
        tells_exchange=shape.workers == 1 or step_fit.missing_measurements(1, 1, batch) is None,
        waits_for_data=bool(step_fit.waits_for_data(settings)[0]),
    )


def find_pareto_front(options: Sequence[PlanOption]) -> list[PlanOption]:
    """Return the options that no other beats in both time and cost, the fastest first."""
    return [options[index] for index in find_front_indices(list_costs(options))]


def find_knee(front: Sequence[PlanOption]) -> PlanOption | None:
    """Return the option furthest from the line between the ends of the front, in logs; None with fewer than three."""
    index = find_knee_index(list_costs(front))
    return None if index is None else front[index]


def list_costs(options: Sequence[PlanOption]) -> list[tuple[float, float]]:
    """Return the time and the worker-seconds of each option."""
    return [(option.seconds, option.worker_seconds) for option in options]


def rank_options(
    options: Sequence[PlanOption], deadline: float | None = None, budget: float | None = None
) -> list[PlanOption]:
    """Return the options within a deadline (seconds) and a budget (worker-seconds), the best first.

    With a deadline the cheapest is best, otherwise the fastest.
    """
    kept = [
        option
        for option in options
        if (deadline is None or option.seconds <= deadline) and (budget is None or option.worker_seconds <= budget)
    ]
    if deadline is None:
        return sorted(kept, key=lambda option: (option.seconds, option.worker_seconds))
    return sorted(kept, key=lambda option: (option.worker_seconds, option.seconds))


def put_measured_first(ranked_options: Sequence[PlanOption], by_cost: bool = False) -> list[PlanOption]:
    """Move the best measured option to the front, unless the first one is clearly faster, or cheaper.

    Predictions between trials err more than their draws say, because the learning rate is interpolated too.
    """
    measured = next((option for option in ranked_options if option.measured), None)
    if measured is None:
        return list(ranked_options)
    first_draws, measured_draws = (
        option.seconds_draws * (option.workers if by_cost else 1) for option in (ranked_options[0], measured)
    )
    if np.mean(first_draws < measured_draws) >= MIN_PREDICTED_PROBABILITY:
        return list(ranked_options)
    return [measured, *(option for option in ranked_options if option is not measured)]


def find_runner_up(ranked_options: Sequence[PlanOption]) -> PlanOption | None:
    """Return the best option that differs from the first in workers or batch, and not only in nodes."""
    others = (
        option
        for option in ranked_options
        if (option.workers, option.batch) != (ranked_options[0].workers, ranked_options[0].batch)
    )
    return next(others, None)


def find_bottleneck(option: PlanOption, curve: ExamplesCurve) -> Bottleneck:
    """Return what limits the speed: `noise` past the critical batch, reading batches, or the longer part of a step."""
    critical = curve.critical_batch
    if critical and option.global_batch > critical[0]:
        return "noise"
    if option.waits_for_data:
        return "data loading"
    if not option.tells_exchange:
        return "unknown"
    return "exchange" if option.component_seconds[1] > option.component_seconds[0] else "compute"


def probability_faster(first: PlanOption, second: PlanOption) -> float:
    """Return the share of draws in which the first option is the faster one."""
    return float(np.mean(first.seconds_draws < second.seconds_draws))


def explain_option(option: PlanOption, runner_up_option: PlanOption | None, curve: ExamplesCurve) -> str:
    """Explain in one sentence why to take an option, and how clearly it beats the runner-up."""
    compute, exchange = option.component_seconds
    min_examples = curve.min_examples
    excess = ""
    if min_examples and curve.identifiable:
        excess = f", {option.examples / min_examples[0] - 1:.0%} more than the fewest possible"
    parts = f" ({compute * 1000:.3g} ms computing, {exchange * 1000:.3g} ms exchanging, before overlap)"
    text = (
        f"a step of {option.global_batch} examples takes {format_number(option.step_seconds * 1000)} ms"
        f"{parts if option.tells_exchange else ''} and {option.examples:,.0f} examples reach the target{excess};"
        f" {BOTTLENECK_TEXT[find_bottleneck(option, curve)]}"
    )
    if runner_up_option is None:
        return text
    return f"{text}; {compare_with_runner_up(option, runner_up_option)}"


def compare_with_runner_up(option: PlanOption, runner_up: PlanOption) -> str:
    """Say in one clause how clearly an option beats the runner-up, or what would tell."""
    probability, change = probability_faster(option, runner_up), runner_up.seconds / option.seconds - 1
    name = f"{runner_up.workers} x {runner_up.batch}"
    if change < 0 and not runner_up.measured:
        return (
            f"{name} is predicted to take {-change:.0%} less time, but was not measured, and is faster in"
            f" {1 - probability:.0%} of draws only: trials at a global batch of {runner_up.global_batch} would tell"
        )
    clarity = "clearly apart" if probability >= 0.9 else "not clearly apart: measure more seeds"
    return f"the runner-up is {name}, {change:+.0%} in time, slower in {probability:.0%} of draws ({clarity})"


def collect_warnings(option: PlanOption | None, step_fit: StepTimeFit, curve: ExamplesCurve) -> list[str]:
    """Return sentences on the limits of the plan, and on what to measure next."""
    warnings = []
    failed = [batch for batch in curve.left_out_batches if curve.missing_measurements(batch)]
    turned_up = [batch for batch in curve.left_out_batches if batch not in failed]
    if failed:
        warnings.append(
            f"left out: at global batches {format_batches(failed)} most runs were cut off before the target"
        )
    if turned_up:
        warnings.append(
            f"left out of the curve: global batches {format_batches(turned_up)} need more examples than larger batches"
        )
    if not curve.identifiable:
        warnings.append(
            "the critical batch is not identifiable: measure at least three global batches, some several times larger"
            f" than {max(curve.batch_summary.index):,.0f}, with three seeds each"
        )
    if not step_fit.form.has_batch_term:
        warnings.append(
            "only one batch per worker was timed, so how computing grows with it is unknown: time a second one"
        )
    if option is None:
        return warnings
    runs = curve.count_runs(option.global_batch)
    if option.global_batch in curve.batch_summary.index and runs < MIN_PLAN_RUNS:
        warnings.append(
            f"preliminary: the plan rests on {pluralize(runs, 'run')} that reached the target at a global batch of"
            f" {option.global_batch}; {MIN_PLAN_RUNS} make it trustworthy"
        )
    largest, smallest = max(curve.batch_summary.index), min(curve.batch_summary.index)
    if option.global_batch == largest:
        warnings.append(f"the plan sits at the largest batch measured ({largest:,.0f}): measure {2 * largest:,.0f}")
    if option.global_batch == smallest and len(curve.batch_summary) > 1:
        warnings.append(f"the plan sits at the smallest batch measured ({smallest:,.0f}): measure {smallest / 2:,.0f}")
    if option.batch == step_fit.rows.batch.max() and option.global_batch != largest:
        warnings.append(
            f"the plan sits at the largest batch per worker timed ({option.batch:,}): time {2 * option.batch:,}"
        )
    return warnings


def format_batches(batches: Iterable[float]) -> str:
    """Format batches as a comma-separated list with thousands separators."""
    return ", ".join(f"{batch:,.0f}" for batch in batches)
