"""Verdicts on shardings in the plan of a sweep, by the closed forms of their steps and of their memory.

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
    whole = fit_exact_sums(replace(exact, memory_bytes=limit.limit_bytes), step_fit=costs.fit, curve=fits.curve)
    whole_peak = limit.predict_peak("", fits.plan.workers, fits.plan.batch, exact.system)
    reference = whole.reference if whole else fits.reference
    used = {verdict.exchange for verdict in document.exchanges if verdict.verdict == "use"}
    estimates = [
        estimate
        for name in dict.fromkeys(names)
        if name not in used and (estimate := estimate_sharding(fits, costs, limit, exact, reference, name))
    ]
    binds = whole_peak > limit.limit_bytes
    open_estimates = [each for each in estimates if each.estimate.exchange not in lost_names]
    best = min(open_estimates, key=lambda each: each.seconds, default=None) if binds else None
    has_plan = document.plan is not None
    is_used = best is not None and best.fits and (not has_plan or beats_exact_sums(best.estimate))
    winner = best if is_used else None
    text = explain_whole_model(whole_peak, limit.limit_bytes, binds=binds)
    verdicts = [judge_sharding(each, winner, costs, limit, text, has_plan=has_plan) for each in estimates]
    known = {verdict.exchange for verdict in verdicts}
    others = [verdict for verdict in document.exchanges if verdict.exchange not in known]
    document = replace(document, exchanges=(*verdicts, *others))
    if winner is None:
        return document
    why = next(verdict.why for verdict in verdicts if verdict.exchange == winner.estimate.exchange)
    plan = build_exchange_entry(fits, winner.estimate, why)
    return replace(document, plan=plan, runner_up=document.plan)


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
    verdict, end = compare_sharding(sharding, winner, whole_model, has_plan=has_plan)
    if not sharding.fits:
        verdict, end = "does not fit", explain_excess(sharding.peak_bytes, limit.limit_bytes)
    why = f"{sharding.estimate.exchange} {end}"
    return build_estimate_verdict(sharding.estimate, costs, sharding.peak_bytes, verdict, why)


def compare_sharding(
    sharding: ShardingEstimate, winner: ShardingEstimate | None, whole_model: str, *, has_plan: bool
) -> tuple[VerdictName, str]:
    """Return the verdict on a sharding by its time, and the reason."""
    speedup = sharding.estimate.speedup.value
    gain = format_gain(speedup) if speedup > 1 else f"{1 / speedup:.2g} times as long as with whole models"
    if sharding is winner:
        against = f" and is {gain}" if has_plan else ""
        return "use", f"fits in {format_memory(sharding.peak_bytes)} a worker{against}: {whole_model}"
    if winner:
        return "slower", f"fits too, but later than {winner.estimate.exchange}"
    text = f"by its closed form takes {gain}" if speedup <= 1 else f"by its closed form is {gain}"
    return "no gain" if 1 <= speedup < MIN_GAIN else "slower" if speedup < 1 else "unknown", f"{text}; {whole_model}"
