"""What to train with: time to the target over workers and batch, and what it costs.

    seconds = E(B) / B * T(nodes, workers, batch),   B = workers * batch

Time and cost (worker-seconds) pull apart, so the answer is a front between them, its knee,
and the best for what was asked: the fastest, the cheapest within a deadline, or the fastest
within a budget.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES, StepTimeFit
from equipoise.planning.step_time_model import StepSettings, compute_and_exchange_seconds
from equipoise.type_aliases import FloatArray

COMBINED_DRAWS = 400  # draws of step times and of examples, multiplied


class ClusterShape(NamedTuple):
    """Workers on nodes; `workers` counts those of all nodes."""

    nodes: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class PlanOption:
    """One way to train to the target, with what it takes."""

    nodes: int
    workers: int
    batch: int
    lr: float | None
    examples: float
    step_seconds: float
    """seconds of an optimizer step"""
    component_seconds: tuple[float, float]
    """seconds of computing and of the exchange, each alone"""
    seconds_draws: FloatArray = field(repr=False)
    """seconds to the target on average over seeds, as each draw has it"""
    run_log_sd: float
    """standard deviation of a single run about that average, in log seconds"""
    degrees_of_freedom: float
    """degrees of freedom with which that is known"""
    measured: bool
    """whether both factors were measured at this very setting"""

    @property
    def global_batch(self) -> int:
        """Examples of one step."""
        return self.workers * self.batch

    @property
    def seconds(self) -> float:
        """To the target."""
        return self.examples / self.global_batch * self.step_seconds

    @property
    def worker_seconds(self) -> float:
        """What it costs: seconds times workers."""
        return self.seconds * self.workers

    def to_json(self) -> dict[str, Any]:
        """As an entry of plan.json; the interval is that of a single run."""
        single = np.random.default_rng(self.global_batch).standard_t(self.degrees_of_freedom, COMBINED_DRAWS)
        low, high = np.quantile(self.seconds_draws * np.exp(self.run_log_sd * single), INTERVAL_QUANTILES)
        return {
            "nodes": self.nodes,
            "workers": self.workers,
            "batch": self.batch,
            "global_batch": self.global_batch,
            "lr": self.lr,
            "seconds": {"value": self.seconds, "low": float(low), "high": float(high)},
            "worker_seconds": self.worker_seconds,
            "step": {
                "seconds": self.step_seconds,
                "compute": self.component_seconds[0],
                "exchange": self.component_seconds[1],
            },
            "examples": self.examples,
            "measured": self.measured,
        }


def enumerate_options(
    step_fit: StepTimeFit, curve: ExamplesCurve, shapes: Iterable[ClusterShape], global_batches: Iterable[int]
) -> list[PlanOption]:
    """Every place with every global batch that it can hold and that both curves can tell of."""
    low, high = step_fit.rows.batch.min(), step_fit.rows.batch.max()
    found = []
    for nodes, workers in sorted(set(shapes)):
        for whole in sorted(set(global_batches)):
            batch, rest = divmod(whole, workers)
            if (
                rest
                or not low <= batch <= high
                or step_fit.missing_measurements(nodes, workers, batch)
                or curve.missing_measurements(whole)
            ):
                continue
            found.append(build_option(step_fit, curve, ClusterShape(nodes, workers), batch))
    return found


def build_option(step_fit: StepTimeFit, curve: ExamplesCurve, shape: ClusterShape, batch: int) -> PlanOption:
    """One setting with its time to the target."""
    at = StepSettings(*(np.array([value], float) for value in (*shape, batch)))
    whole = shape.workers * batch
    examples, drawn = curve.examples_at(whole), curve.sample_examples(whole)
    if examples is None or drawn is None:
        raise ValueError(
            f"the examples at a global batch of {whole} are not known: {curve.missing_measurements(whole)}"
        )
    scatter, freedom = curve.seed_noise_at(whole)
    rng = np.random.default_rng(whole)
    steps = rng.choice(step_fit.sample_seconds(at)[:, 0], COMBINED_DRAWS)
    rows = step_fit.rows
    here = rows[(rows.nodes == shape.nodes) & (rows.workers == shape.workers) & (rows.batch == batch)]
    step = float(step_fit.shrunk_seconds(at)[0])
    beyond = step / float(step_fit.fitted_seconds(at)[0])  # what was measured there, over the fit
    compute, exchange = (
        float(part[0]) * beyond for part in compute_and_exchange_seconds(step_fit.form, step_fit.parameters, at)
    )
    steps *= beyond
    return PlanOption(
        nodes=shape.nodes,
        workers=shape.workers,
        batch=batch,
        lr=curve.lr_at(whole),
        examples=examples,
        step_seconds=step,
        component_seconds=(compute, exchange),
        seconds_draws=rng.choice(drawn, COMBINED_DRAWS) / whole * steps,
        run_log_sd=float(np.hypot(scatter, step_fit.pace_sd)),
        degrees_of_freedom=freedom,
        measured=bool(len(here)) and whole in curve.batch_summary.index,
    )


def find_pareto_front(options: Sequence[PlanOption]) -> list[PlanOption]:
    """Options that no other beats in both time and cost, the fastest first."""
    best: list[PlanOption] = []
    for one in sorted(options, key=lambda option: (option.seconds, option.worker_seconds)):
        if not best or one.worker_seconds < best[-1].worker_seconds:
            best.append(one)
    return best


def find_knee(front: Sequence[PlanOption]) -> PlanOption | None:
    """Where the front bends most: furthest from the line between its ends, in logs. None with fewer than three."""
    if len(front) < 3:
        return None
    points = np.log([[one.seconds, one.worker_seconds] for one in front])
    scaled = (points - points.min(0)) / np.ptp(points, axis=0)
    return front[int(np.argmin(scaled.sum(1)))]


def rank_options(
    options: Sequence[PlanOption], deadline: float | None = None, budget: float | None = None
) -> list[PlanOption]:
    """Options that keep a deadline (seconds) and a budget (worker-seconds), the best first.

    With a deadline the cheapest is best, otherwise the fastest.
    """
    kept = [
        one
        for one in options
        if (deadline is None or one.seconds <= deadline) and (budget is None or one.worker_seconds <= budget)
    ]
    if deadline is None:
        return sorted(kept, key=lambda one: (one.seconds, one.worker_seconds))
    return sorted(kept, key=lambda one: (one.worker_seconds, one.seconds))


def find_runner_up(ranked_options: Sequence[PlanOption]) -> PlanOption | None:
    """The best that is another plan and not only another place for the same workers."""
    others = (
        one
        for one in ranked_options
        if (one.workers, one.batch) != (ranked_options[0].workers, ranked_options[0].batch)
    )
    return next(others, None)


def find_bottleneck(option: PlanOption, curve: ExamplesCurve) -> str:
    """What keeps this option from being faster: `noise` past the critical batch, else the longer part of a step."""
    critical = curve.critical_batch
    if critical and option.global_batch > critical[0]:
        return "noise"
    return "exchange" if option.component_seconds[1] > option.component_seconds[0] else "compute"


def probability_faster(first: PlanOption, second: PlanOption) -> float:
    """Share of draws in which the first is the faster one."""
    return float(np.mean(first.seconds_draws < second.seconds_draws))


def explain_option(option: PlanOption, runner_up_option: PlanOption | None, curve: ExamplesCurve) -> str:
    """The reason in words."""
    compute, exchange = option.component_seconds
    least = curve.min_examples
    more = (
        f", {option.examples / least[0] - 1:.0%} more than the fewest possible" if least and curve.identifiable else ""
    )
    text = (
        f"a step of {option.global_batch} examples takes {option.step_seconds * 1000:.3g} "
        f"ms ({compute * 1000:.3g} computing,"
        f" {exchange * 1000:.3g} exchanging, as far as they do not overlap) and {option.examples:,.0f} examples"
        f" reach the target{more}; {BOTTLENECK_TEXT[find_bottleneck(option, curve)]}"
    )
    if runner_up_option is None:
        return text
    surely = probability_faster(option, runner_up_option)
    told = "well apart" if surely >= 0.9 else "hardly apart: more seeds would tell"
    return (
        f"{text}; next comes {runner_up_option.workers} x {runner_up_option.batch}, "
        f"{runner_up_option.seconds / option.seconds - 1:+.0%} in time,"
        f" slower in {surely:.0%} of draws ({told})"
    )


BOTTLENECK_TEXT = {
    "compute": "computing takes most of a step: faster workers help, or more of them as far as the exchange lets",
    "exchange": "the exchange takes most of a step: a larger batch or a faster network helps",
    "noise": "most of each further example in the batch is wasted: a smaller batch teaches more an example",
}


def collect_warnings(option: PlanOption | None, step_fit: StepTimeFit, curve: ExamplesCurve) -> list[str]:
    """What a reader should know before believing the plan, and what to measure."""
    said = []
    fails = [batch for batch in curve.left_out_batches if curve.missing_measurements(batch)]
    turned = [batch for batch in curve.left_out_batches if batch not in fails]
    if fails:
        said.append(f"left out: at global batches {format_batches(fails)} most runs were cut off before the target")
    if turned:
        said.append(
            f"left out of the curve: at global batches {format_batches(turned)} more examples are needed than beyond"
        )
    if not curve.identifiable:
        said.append(
            "the critical batch is not identifiable: measure three global batches or more, some several times larger"
            f" than {max(curve.batch_summary.index):,.0f}, with three seeds each"
        )
    if not step_fit.form.has_batch_term:
        said.append("only one batch per worker was timed: computing cannot be split; time a second one")
    if option is None:
        return said
    largest, smallest = max(curve.batch_summary.index), min(curve.batch_summary.index)
    if option.global_batch == largest:
        said.append(f"the plan sits at the largest batch measured ({largest:,.0f}): measure {2 * largest:,.0f}")
    if option.global_batch == smallest and len(curve.batch_summary) > 1:
        said.append(f"the plan sits at the smallest batch measured ({smallest:,.0f}): measure {smallest / 2:,.0f}")
    if option.batch == step_fit.rows.batch.max() and option.global_batch != largest:
        said.append(
            f"the plan sits at the largest batch per worker timed ({option.batch:,}): time {2 * option.batch:,}"
        )
    return said


def format_batches(batches: Iterable[float]) -> str:
    """Batches in words."""
    return ", ".join(f"{batch:,.0f}" for batch in batches)
