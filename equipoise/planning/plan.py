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
from numpy.typing import NDArray

from equipoise.planning.examples_to_target import Curve
from equipoise.planning.step_time_fit import COVERED, System
from equipoise.planning.step_time_model import Places, parts

Floats = NDArray[np.float64]

PAIRS = 400  # draws of step times and of examples, multiplied


class Place(NamedTuple):
    """Workers on nodes; `workers` counts those of all nodes."""

    nodes: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to train to the target, with what it takes."""

    nodes: int
    workers: int
    batch: int
    lr: float | None
    examples: float
    step: float
    """seconds of an optimizer step"""
    shares: tuple[float, float]
    """seconds of computing and of the exchange, each alone"""
    draws: Floats = field(repr=False)
    """seconds to the target on average over seeds, as each draw has it"""
    scatter: float
    """standard deviation of a single run about that average, in log seconds"""
    freedom: float
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
        return self.examples / self.global_batch * self.step

    @property
    def worker_seconds(self) -> float:
        """What it costs: seconds times workers."""
        return self.seconds * self.workers

    def json(self) -> dict[str, Any]:
        """As an entry of plan.json; the interval is that of a single run."""
        single = np.random.default_rng(self.global_batch).standard_t(self.freedom, PAIRS)
        low, high = np.quantile(self.draws * np.exp(self.scatter * single), COVERED)
        return {
            "nodes": self.nodes,
            "workers": self.workers,
            "batch": self.batch,
            "global_batch": self.global_batch,
            "lr": self.lr,
            "seconds": {"value": self.seconds, "low": float(low), "high": float(high)},
            "worker_seconds": self.worker_seconds,
            "step": {"seconds": self.step, "compute": self.shares[0], "exchange": self.shares[1]},
            "examples": self.examples,
            "measured": self.measured,
        }


def options(system: System, curve: Curve, places: Iterable[Place], batches: Iterable[int]) -> list[Option]:
    """Every place with every global batch that it can hold and that both curves can tell of."""
    low, high = system.rows.batch.min(), system.rows.batch.max()
    found = []
    for nodes, workers in sorted(set(places)):
        for whole in sorted(set(batches)):
            batch, rest = divmod(whole, workers)
            if rest or not low <= batch <= high or system.missing(nodes, workers, batch) or curve.missing(whole):
                continue
            found.append(option(system, curve, Place(nodes, workers), batch))
    return found


def option(system: System, curve: Curve, place: Place, batch: int) -> Option:
    """One setting with its time to the target."""
    at = Places(*(np.array([value], float) for value in (*place, batch)))
    whole = place.workers * batch
    examples, drawn = curve.examples(whole), curve.sampled(whole)
    if examples is None or drawn is None:
        raise ValueError(f"the examples at a global batch of {whole} are not known: {curve.missing(whole)}")
    scatter, freedom = curve.scatter(whole)
    rng = np.random.default_rng(whole)
    steps = rng.choice(system.sampled(at)[:, 0], PAIRS)
    rows = system.rows
    here = rows[(rows.nodes == place.nodes) & (rows.workers == place.workers) & (rows.batch == batch)]
    step = float(system.believed(at)[0])
    beyond = step / float(system.seconds(at)[0])  # what was measured there, over the fit
    compute, exchange = (float(part[0]) * beyond for part in parts(system.form, system.parameters, at))
    steps *= beyond
    return Option(
        nodes=place.nodes,
        workers=place.workers,
        batch=batch,
        lr=curve.lr(whole),
        examples=examples,
        step=step,
        shares=(compute, exchange),
        draws=rng.choice(drawn, PAIRS) / whole * steps,
        scatter=float(np.hypot(scatter, system.pace_sd)),
        freedom=freedom,
        measured=bool(len(here)) and whole in curve.means.index,
    )


def front(found: Sequence[Option]) -> list[Option]:
    """Options that no other beats in both time and cost, the fastest first."""
    best: list[Option] = []
    for one in sorted(found, key=lambda option: (option.seconds, option.worker_seconds)):
        if not best or one.worker_seconds < best[-1].worker_seconds:
            best.append(one)
    return best


def knee(along: Sequence[Option]) -> Option | None:
    """Where the front bends most: furthest from the line between its ends, in logs. None with fewer than three."""
    if len(along) < 3:
        return None
    points = np.log([[one.seconds, one.worker_seconds] for one in along])
    scaled = (points - points.min(0)) / np.ptp(points, axis=0)
    return along[int(np.argmin(scaled.sum(1)))]


def best(found: Sequence[Option], deadline: float | None = None, budget: float | None = None) -> list[Option]:
    """Options that keep a deadline (seconds) and a budget (worker-seconds), the best first.

    With a deadline the cheapest is best, otherwise the fastest.
    """
    kept = [
        one
        for one in found
        if (deadline is None or one.seconds <= deadline) and (budget is None or one.worker_seconds <= budget)
    ]
    if deadline is None:
        return sorted(kept, key=lambda one: (one.seconds, one.worker_seconds))
    return sorted(kept, key=lambda one: (one.worker_seconds, one.seconds))


def runner_up(ranked: Sequence[Option]) -> Option | None:
    """The best that is another plan and not only another place for the same workers."""
    others = (one for one in ranked if (one.workers, one.batch) != (ranked[0].workers, ranked[0].batch))
    return next(others, None)


def binding(one: Option, curve: Curve) -> str:
    """What keeps this option from being faster: `noise` past the critical batch, else the longer part of a step."""
    critical = curve.critical_batch
    if critical and one.global_batch > critical[0]:
        return "noise"
    return "exchange" if one.shares[1] > one.shares[0] else "compute"


def certainty(first: Option, second: Option) -> float:
    """Share of draws in which the first is the faster one."""
    return float(np.mean(first.draws < second.draws))


def why(one: Option, second: Option | None, curve: Curve) -> str:
    """The reason in words."""
    compute, exchange = one.shares
    least = curve.min_examples
    more = f", {one.examples / least[0] - 1:.0%} more than the fewest possible" if least and curve.identifiable else ""
    text = (
        f"a step of {one.global_batch} examples takes {one.step * 1000:.3g} ms ({compute * 1000:.3g} computing,"
        f" {exchange * 1000:.3g} exchanging, as far as they do not overlap) and {one.examples:,.0f} examples"
        f" reach the target{more}; {BOUND[binding(one, curve)]}"
    )
    if second is None:
        return text
    surely = certainty(one, second)
    told = "well apart" if surely >= 0.9 else "hardly apart: more seeds would tell"
    return (
        f"{text}; next comes {second.workers} x {second.batch}, {second.seconds / one.seconds - 1:+.0%} in time,"
        f" slower in {surely:.0%} of draws ({told})"
    )


BOUND = {
    "compute": "computing takes most of a step: faster workers help, or more of them as far as the exchange lets",
    "exchange": "the exchange takes most of a step: a larger batch or a faster network helps",
    "noise": "most of each further example in the batch is wasted: a smaller batch teaches more an example",
}


def warnings(one: Option | None, system: System, curve: Curve) -> list[str]:
    """What a reader should know before believing the plan, and what to measure."""
    said = []
    fails = [batch for batch in curve.left_out if curve.missing(batch)]
    turned = [batch for batch in curve.left_out if batch not in fails]
    if fails:
        said.append(f"left out: at global batches {listed(fails)} most runs were cut off before the target")
    if turned:
        said.append(f"left out of the curve: at global batches {listed(turned)} more examples are needed than beyond")
    if not curve.identifiable:
        said.append(
            "the critical batch is not identifiable: measure three global batches or more, some several times larger"
            f" than {max(curve.means.index):,.0f}, with three seeds each"
        )
    if not system.form.batch:
        said.append("only one batch per worker was timed: computing cannot be split; time a second one")
    if one is None:
        return said
    largest, smallest = max(curve.means.index), min(curve.means.index)
    if one.global_batch == largest:
        said.append(f"the plan sits at the largest batch measured ({largest:,.0f}): measure {2 * largest:,.0f}")
    if one.global_batch == smallest and len(curve.means) > 1:
        said.append(f"the plan sits at the smallest batch measured ({smallest:,.0f}): measure {smallest / 2:,.0f}")
    if one.batch == system.rows.batch.max() and one.global_batch != largest:
        said.append(f"the plan sits at the largest batch per worker timed ({one.batch:,}): time {2 * one.batch:,}")
    return said


def listed(batches: Iterable[float]) -> str:
    """Batches in words."""
    return ", ".join(f"{batch:,.0f}" for batch in batches)
