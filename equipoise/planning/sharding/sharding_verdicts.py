"""Verdicts on shardings in the plan of a sweep, by the closed forms of their memory and of their steps.

A sweep times the steps of the one to be used beside those of whole models, which corrects its closed form.

Where the whole model fits at the best setting with exact sums, none is used: it exchanges more, and learns the same.
Else the best setting of each that fits is compared with the best one of whole models that fits, if there is any.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exact_fits import ExactFits, fit_exact_sums
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchange_choice.exchange_estimates import (
    ExchangeEstimate,
    apply_exchange,
    build_exact_ratio,
    build_exchange_entry,
    estimate_interval,
)
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict, VerdictName
from equipoise.planning.exchange_choice.exchange_verdicts import (
    beats_exact_sums,
    build_estimate_verdict,
    format_gain,
)
from equipoise.planning.memory.memory_limit import explain_excess, format_memory
from equipoise.planning.memory.memory_verdicts import WHOLE_MODEL_TEXT
from equipoise.planning.plan import PlanOption
from equipoise.planning.sharding.worker_limit import WorkerLimit

SHARDINGS = ("optimizer", "full")
"""shardings that a sweep considers by itself"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardingEstimate:
    """Sharding at its best setting that fits, or if none does at the one that needs least."""

    estimate: ExchangeEstimate
    peak_bytes: float
    fits: bool

    @property
    def seconds(self) -> float:
        """Seconds to the target; infinite if it does not fit."""
        return self.estimate.option.seconds if self.fits else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardingEstimates:
    """Estimates of shardings, and whether the whole model needs one."""

    shardings: tuple[ShardingEstimate, ...]
    whole_peak_bytes: float
    """bytes of a worker with the whole model, at its best setting if memory had no limit"""
    memory_binds: bool
    """whether these are more than the limit"""

    def find_fastest(self, left_out: Collection[str] = ()) -> ShardingEstimate | None:
        """Return the fastest sharding except those named; None if there is no other."""
        others = [each for each in self.shardings if each.estimate.exchange not in left_out]
        return min(others, key=lambda each: each.seconds, default=None)


def add_sharding_verdicts(
    document: PlanDocument,
    exact: PlanRequest,
    fits: ExactFits,
    costs: ExchangeCosts,
    limit: WorkerLimit,
    names: Iterable[str] = SHARDINGS,
    lost_names: Collection[str] = (),
) -> PlanDocument:
    """Return the plan of whole models with verdicts on shardings, and with the plan of the one to use.

    `exact` are the measurements with exact sums, and `fits` those of all settings, whatever memory they need. Training
    runs have refuted the plan with each of `lost_names`.
    """
    used = {verdict.exchange for verdict in document.exchanges if verdict.verdict == "use"}
    estimates = estimate_shardings(exact, fits, costs, limit, [name for name in names if name not in used])
    whole_peak, binds = estimates.whole_peak_bytes, estimates.memory_binds
    best = estimates.find_fastest(lost_names) if binds else None
    has_plan = document.plan is not None
    is_used = best is not None and best.fits and (not has_plan or beats_exact_sums(best.estimate))
    winner = best if is_used else None
    text = explain_whole_model(whole_peak, limit.limit_bytes, binds=binds)
    verdicts = [judge_sharding(each, winner, costs, limit, text, has_plan=has_plan) for each in estimates.shardings]
    known = {verdict.exchange for verdict in verdicts}
    others = [verdict for verdict in document.exchanges if verdict.exchange not in known]
    document = replace(document, exchanges=(*verdicts, *others))
    if winner is None:
        return document
    why = next(verdict.why for verdict in verdicts if verdict.exchange == winner.estimate.exchange)
    plan = build_exchange_entry(fits, winner.estimate, why)
    return replace(document, plan=plan, runner_up=document.plan)


def estimate_shardings(
    exact: PlanRequest, fits: ExactFits, costs: ExchangeCosts, limit: WorkerLimit, names: Iterable[str]
) -> ShardingEstimates:
    """Return the estimates of those shardings that the options of the runs allow.

    They are compared with the best setting of whole models that fits, or with the best of all where none does.
    """
    whole = fit_exact_sums(replace(exact, memory_bytes=limit.limit_bytes), step_fit=costs.fit, curve=fits.curve)
    reference = whole.reference if whole else fits.reference
    estimates = [estimate_sharding(fits, costs, limit, exact, reference, name) for name in dict.fromkeys(names)]
    peak = limit.predict_peak("", fits.plan.workers, fits.plan.batch, exact.system)
    return ShardingEstimates(
        shardings=tuple(estimate for estimate in estimates if estimate),
        whole_peak_bytes=peak,
        memory_binds=peak > limit.limit_bytes,
    )


def estimate_sharding(
    fits: ExactFits, costs: ExchangeCosts, limit: WorkerLimit, exact: PlanRequest, reference: PlanOption, name: str
) -> ShardingEstimate | None:
    """Return the estimate of a sharding; None where the options of the runs, or what is known, do not allow it."""
    usable = [limit.can_use(name, option.workers) for option in fits.options]
    if costs.missing_facts(name) or not any(usable):
        return None
    peaks = np.array(
        [
            limit.predict_peak(name, option.workers, option.batch, exact.system) if is_usable else np.inf
            for option, is_usable in zip(fits.options, usable, strict=True)
        ]
    )
    steps = costs.step_seconds(name, fits.settings)
    seconds = np.where(peaks <= limit.limit_bytes, fits.examples / fits.global_batches * steps, np.inf)
    does_fit = bool(np.isfinite(seconds).any())
    index = int(seconds.argmin() if does_fit else peaks.argmin())
    ratio = build_exact_ratio(fits.options[index])
    option = apply_exchange(fits.options[index], ratio, float(steps[index]), costs.is_timed(name), name)
    speedup = estimate_interval(reference.seconds / option.seconds, reference.seconds_draws / option.seconds_draws)
    estimate = ExchangeEstimate(exchange=name, option=option, ratio=ratio, speedup=speedup)
    return ShardingEstimate(estimate=estimate, peak_bytes=float(peaks[index]), fits=does_fit)


def explain_whole_model(peak_bytes: float, limit_bytes: float, *, binds: bool) -> str:
    """Say how much memory the whole model needs at its best setting."""
    return f"{WHOLE_MODEL_TEXT} {explain_excess(peak_bytes, limit_bytes)}" + (" at its best setting" if binds else "")


def judge_sharding(
    sharding: ShardingEstimate,
    winner: ShardingEstimate | None,
    costs: ExchangeCosts,
    limit: WorkerLimit,
    whole_model: str,
    *,
    has_plan: bool,
) -> ExchangeVerdict:
    """Return the verdict on a sharding; `whole_model` says what the whole model needs."""
    source = "" if costs.is_timed(sharding.estimate.exchange) else "by its closed form "
    verdict, end = compare_sharding(sharding, winner, whole_model, source, has_plan=has_plan)
    if not sharding.fits:
        verdict, end = "does not fit", explain_excess(sharding.peak_bytes, limit.limit_bytes)
    why = f"{sharding.estimate.exchange} {end}"
    return build_estimate_verdict(sharding.estimate, costs, sharding.peak_bytes, verdict, why)


def compare_sharding(
    sharding: ShardingEstimate, winner: ShardingEstimate | None, whole_model: str, source: str, *, has_plan: bool
) -> tuple[VerdictName, str]:
    """Return the verdict on a sharding by its time, and the reason; `source` says what the time is known by."""
    speedup = sharding.estimate.speedup.value
    gain = format_gain(speedup) if speedup > 1 else f"{1 / speedup:.2g} times as long as with whole models"
    if sharding is winner:
        against = f" and is {gain}" if has_plan else ""
        return "use", f"fits in {format_memory(sharding.peak_bytes)} a worker{against}: {whole_model}"
    if winner:
        return "slower", f"fits too, but later than {winner.estimate.exchange}"
    text = f"{source}takes {gain}" if speedup <= 1 else f"{source}is {gain}"
    return "no gain" if 1 <= speedup < MIN_GAIN else "slower" if speedup < 1 else "unknown", f"{text}; {whole_model}"
