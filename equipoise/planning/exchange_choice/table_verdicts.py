"""Verdicts on ways of exchange of which a plan's tables have step times and training runs, whoever measured them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.exchange_estimates import estimate_interval, is_clear_gain
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict, SwitchesAt, VerdictName
from equipoise.planning.exchange_choice.exchange_verdicts import format_gain, format_ratio
from equipoise.planning.exchanges.compose_exchange import ClusterSetting
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.predict_exchanges import ExchangePredictor
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.memory.measured_peaks import find_peak
from equipoise.planning.plan import ClusterShape, PlanOption, build_option
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.type_aliases import FloatArray

SCANNED_DECADES = 2  # of rates to either side of the one of the plan, in which a switch is searched
SCANNED_RATES, INTERPOLATED_RATES = 17, 2001


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeCandidate:
    """Plan with one way of exchange at one rate, and what it rests on."""

    name: str
    """way of exchange"""
    rate: float | None
    """bits per second of the slowest link; None where it is not known"""
    request: PlanRequest = field(repr=False)
    """measurements of this way of exchange"""
    document: PlanDocument = field(repr=False)
    """plan with it"""
    step_fit: StepTimeFit | None = field(default=None, repr=False)
    """fit of its step times"""
    curve: ExamplesCurve | None = field(default=None, repr=False)
    """fit of its examples"""

    @property
    def is_exact(self) -> bool:
        """Whether its steps are those of exact sums, by any algorithm or by servers, of workers with whole models."""
        return parse_exchange(self.name).learns_exactly and not self.is_sharded

    @property
    def is_sharded(self) -> bool:
        """Whether each worker holds a part of the model."""
        return parse_exchange(self.name).sharding != "none"

    @property
    def plan_option(self) -> PlanOption | None:
        """Setting of the plan, with the draws of its time."""
        plan = self.document.plan
        if plan is None or self.step_fit is None or self.curve is None:
            return None
        return build_option(self.step_fit, self.curve, ClusterShape(plan.nodes, plan.workers), plan.batch)


def find_best_exact(candidates: Sequence[ExchangeCandidate]) -> ExchangeCandidate | None:
    """Return the candidate with exact sums whose plan is the fastest; None if none has a plan."""
    exact = [(plan.seconds.value, index) for index, plan in list_plans(candidates) if candidates[index].is_exact]
    return candidates[min(exact)[1]] if exact else None


def list_plans(candidates: Sequence[ExchangeCandidate]) -> list[tuple[int, PlanEntry]]:
    """Return the position and the plan of each candidate that has one."""
    return [(index, candidate.document.plan) for index, candidate in enumerate(candidates) if candidate.document.plan]


def estimate_speedup(candidate: ExchangeCandidate, exact: ExchangeCandidate) -> IntervalEstimate | None:
    """Return how many times sooner a candidate reaches the target than exact sums; None without plans of both."""
    option, reference = candidate.plan_option, exact.plan_option
    if option is None or reference is None:
        return None
    draws = np.random.default_rng(0).permutation(reference.seconds_draws) / option.seconds_draws
    return estimate_interval(reference.seconds / option.seconds, draws)


def does_win(candidate: ExchangeCandidate, exact: ExchangeCandidate) -> bool:
    """Return whether a candidate is clearly enough sooner than exact sums to be used."""
    speedup = estimate_speedup(candidate, exact)
    return speedup is not None and is_clear_gain(speedup)


def add_exchange_verdicts(
    document: PlanDocument,
    chosen: ExchangeCandidate,
    candidates: Sequence[ExchangeCandidate],
    predictor: ExchangePredictor,
) -> PlanDocument:
    """Return the document with a verdict on each other way of exchange that has a plan, and where the answer changes.

    Delays are in no table, so that only the rate of a switch can be told.
    """
    exact = find_best_exact(candidates)
    others = [candidate for candidate in candidates if not candidate.is_exact and candidate.document.plan]
    if exact is None or not others:
        return document
    ranked = sorted(list_plans(others), key=lambda plan: plan[1].seconds.value)
    fastest = {others[index].name: others[index] for index, _ in reversed(ranked)}  # of several numbers of workers
    verdicts = [judge_candidate(candidate, exact, chosen) for candidate in reversed(fastest.values())]
    rate = find_rate_switch([candidate for candidate in candidates if candidate.document.plan], predictor)
    return replace(document, exchanges=tuple(filter(None, verdicts)), switches_at=SwitchesAt(bits_per_second=rate))


def judge_candidate(
    candidate: ExchangeCandidate, exact: ExchangeCandidate, chosen: ExchangeCandidate
) -> ExchangeVerdict | None:
    """Return the verdict on a candidate against exact sums; None without a plan of both."""
    option, speedup = candidate.plan_option, estimate_speedup(candidate, exact)
    plan = candidate.document.plan
    if option is None or speedup is None or plan is None:
        return None
    ratio = compare_examples(candidate, exact, option.global_batch)
    verdict, end = judge_speedup(speedup, candidate is chosen, does_win(candidate, exact), chosen.name)
    needs = f" needs {format_ratio(ratio.value)} examples:" if ratio else ":"
    rows = candidate.request.system
    here = None if rows is None else rows[rows.workers == option.workers]
    return ExchangeVerdict(
        exchange=candidate.name,
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        lr=option.lr,
        step_seconds=option.step_seconds,
        sent_bytes=read_median(here, "sent_bytes"),
        encode_seconds=read_median(here, "encode_seconds"),
        examples_ratio=ratio,
        seconds=estimate_interval(option.seconds, option.seconds_draws),
        speedup=speedup,
        peak_bytes=None if rows is None else find_peak(rows, option.workers, option.batch),
        verdict=verdict,
        why=f"{candidate.name}{needs} {end}",
        measured=plan.measured,
    )


def judge_speedup(
    speedup: IntervalEstimate, is_chosen: bool, is_clear: bool, chosen_name: str
) -> tuple[VerdictName, str]:
    """Return the verdict on a speed-up over exact sums, and the reason."""
    if is_chosen:
        return "use", format_gain(speedup.value)
    if is_clear:
        return "slower", f"{format_gain(speedup.value)}, but later than {chosen_name}"
    if speedup.high < 1:
        return "slower", f"{1 / speedup.value:.2g} times as long as exact sums"
    if speedup.value >= MIN_GAIN:
        return "unknown", f"{format_gain(speedup.value)}, but not clearly: more seeds would tell"
    return "no gain", f"at most {format_gain(speedup.high)}" if speedup.high > 1 else "not sooner"


def compare_examples(
    candidate: ExchangeCandidate, exact: ExchangeCandidate, global_batch: int
) -> IntervalEstimate | None:
    """Return the examples of a candidate over those of exact sums at a global batch; None if one is not known."""
    if candidate.curve is None or exact.curve is None:
        return None
    own, others = candidate.curve.examples_at(global_batch), exact.curve.examples_at(global_batch)
    draws, other_draws = candidate.curve.sample_examples(global_batch), exact.curve.sample_examples(global_batch)
    if own is None or others is None or draws is None or other_draws is None:
        return None
    return estimate_interval(own / others, draws / np.random.default_rng(0).permutation(other_draws))


def read_median(rows: pd.DataFrame | None, name: str) -> float | None:
    """Return the median of a column of rows; None where they have no number in it."""
    if rows is None or name not in rows or rows[name].isna().all():
        return None
    return float(rows[name].median())


def find_rate_switch(candidates: Sequence[ExchangeCandidate], predictor: ExchangePredictor) -> float | None:
    """Return the rate nearest to that of the plan at which exact sums start or stop to be the best; None if none is."""
    rate = candidates[0].rate
    if rate is None:
        return None
    rates = np.geomspace(rate / 10**SCANNED_DECADES, rate * 10**SCANNED_DECADES, SCANNED_RATES)
    times = {True: np.full(len(rates), np.inf), False: np.full(len(rates), np.inf)}
    for candidate in candidates:
        seconds = times[candidate.is_exact]
        np.minimum(seconds, predict_at_rates(candidate, predictor, rates), out=seconds)
    known = np.isfinite(times[True]) & np.isfinite(times[False])
    if known.sum() < 2:
        return None
    logs = np.log(rates[known])
    fine = np.linspace(logs[0], logs[-1], INTERPOLATED_RATES)
    gains = np.interp(fine, logs, np.log(times[True][known] / times[False][known]))
    changes = np.flatnonzero(np.diff((gains >= np.log(MIN_GAIN)).astype(int)))
    if not len(changes):
        return None
    return float(f"{np.exp(fine[min(changes, key=lambda index: abs(fine[index] - np.log(rate)))]):.4g}")


def predict_at_rates(candidate: ExchangeCandidate, predictor: ExchangePredictor, rates: FloatArray) -> FloatArray:
    """Return the seconds to the target of the best setting of a candidate at each rate; infinite where unknown."""
    best = np.full(len(rates), np.inf)
    for option in candidate.document.options:
        setting = ClusterSetting(option.nodes, option.workers, option.batch)
        steps = [predictor.predict_seconds(setting, candidate.name, float(rate)) for rate in rates]
        seconds = [step if isinstance(step, float) else np.inf for step in steps]
        best = np.minimum(best, option.examples / option.global_batch * np.array(seconds))
    return best
