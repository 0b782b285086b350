"""Verdict on each way of exchange, with the reason in one sentence.

One is used if it is at least 5 % sooner than the best setting with exact sums with all of its interval: on fast links
none is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.examples_ratio import ExamplesRatio
from equipoise.planning.exchange_choice.exchange_bounds import (
    DEFAULT_CANDIDATES,
    MIN_GAIN,
    ExchangeBound,
    bound_exchange,
    bound_exchanges,
)
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchange_choice.exchange_estimates import (
    ExchangeEstimate,
    estimate_exchanges,
    estimate_interval,
    is_clear_gain,
)
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict, VerdictName
from equipoise.planning.exchange_choice.ratio_table import RatioTable
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.memory.memory_limit import explain_excess


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """Memory that ways of exchange need, as far as it was measured."""

    peak_bytes: Mapping[str, float] = field(default_factory=dict)
    """most memory of a worker, by way of exchange"""
    limit_bytes: float | None = None
    """memory that a worker may use; None where it is not known"""

    def does_fit(self, name: str) -> bool:
        """Return whether a way of exchange fits in memory, as far as that is known."""
        peak = self.peak_bytes.get(name)
        return peak is None or self.limit_bytes is None or peak <= self.limit_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeChoice:
    """Verdicts on all ways of exchange, and the estimate of the one to use."""

    verdicts: tuple[ExchangeVerdict, ...]
    """verdict on each way of exchange, the soonest at the target first"""
    winner: ExchangeEstimate | None = None
    """estimate of the way of exchange to use; None if exact sums are to be kept"""


def judge_exchanges(
    fits: ExactFits,
    costs: ExchangeCosts,
    ratios: RatioTable,
    names: Iterable[str] = DEFAULT_CANDIDATES,
    memory: MemoryFacts | None = None,
) -> ExchangeChoice:
    """Return the verdict on each way of exchange: those with training runs, and the candidates in `names`."""
    memory = memory or MemoryFacts()
    estimates = best_by_family(estimate_exchanges(fits, costs, ratios))
    winner = next(
        (estimate for estimate in estimates if beats_exact_sums(estimate) and memory.does_fit(estimate.exchange)), None
    )
    judged = [judge_estimate(fits, costs, estimate, winner, memory) for estimate in estimates]
    tried = {family_name(verdict.exchange) for verdict in judged}
    failures = {
        family_name(name): judge_failure(fits, costs, failure)
        for name in dict.fromkeys(ratio.key.exchange for ratio in reversed(ratios.ratios))
        if family_name(name) not in tried and (failure := ratios.find_failure(name)) and not costs.missing_facts(name)
    }
    tried |= {*failures}
    untried = [name for name in names if family_name(name) not in tried]
    bounds = bound_exchanges(fits, costs, untried)
    verdicts = [*judged, *failures.values(), *(judge_bound(costs, bound, memory) for bound in best_bounds(bounds))]
    verdicts += [judge_unknown(fits, name, gap) for name in untried if (gap := costs.missing_facts(name))]
    return ExchangeChoice(verdicts=tuple(verdicts), winner=winner)


def beats_exact_sums(estimate: ExchangeEstimate) -> bool:
    """Return whether a way of exchange is clearly enough sooner than exact sums to be used."""
    return is_clear_gain(estimate.speedup)


def family_name(name: str) -> str:
    """Return what a way of exchange shares with those that differ in H or S alone."""
    method = parse_exchange(name)
    if method.sync == "async":
        return "/".join(["async", *method.name.split("/")[1:]])
    return method.name if method.interval_family is None else f"{method.sync}/{method.compression}"


def best_by_family(estimates: Iterable[ExchangeEstimate]) -> list[ExchangeEstimate]:
    """Return the fastest estimate of each family; `estimates` must be ranked by speed."""
    best: dict[str, ExchangeEstimate] = {}
    for estimate in estimates:
        best.setdefault(family_name(estimate.exchange), estimate)
    return list(best.values())


def best_bounds(bounds: Iterable[ExchangeBound]) -> list[ExchangeBound]:
    """Return the bound of each family that promises most; if none of a family may gain, its largest bound."""
    best: dict[str, ExchangeBound] = {}
    for bound in sorted(bounds, key=lambda bound: (-bound.may_gain, -bound.prior_speedup, bound.exchange)):
        family = family_name(bound.exchange)
        known = best.setdefault(family, bound)
        if not known.may_gain and bound.max_speedup > known.max_speedup:
            best[family] = bound
    return sorted(best.values(), key=lambda bound: (-bound.max_speedup, bound.exchange))


def judge_estimate(
    fits: ExactFits,
    costs: ExchangeCosts,
    estimate: ExchangeEstimate,
    winner: ExchangeEstimate | None,
    memory: MemoryFacts,
) -> ExchangeVerdict:
    """Return the verdict on a way of exchange whose examples and step times are known."""
    bound, option, speedup = bound_exchange(fits, costs, estimate.exchange), estimate.option, estimate.speedup
    verdict: VerdictName = "no gain"
    end = f"at most {format_gain(speedup.high)}"
    if not memory.does_fit(estimate.exchange):
        verdict, end = "does not fit", explain_memory(memory, estimate.exchange)
    elif estimate is winner:
        verdict, end = "use", format_gain(speedup.value)
    elif beats_exact_sums(estimate) and winner:
        verdict, end = "slower", f"{format_gain(speedup.value)}, but later than {winner.exchange}"
    elif speedup.high < 1:
        verdict, end = "slower", f"{1 / speedup.value:.2g} times as long as exact sums"
    elif speedup.value >= MIN_GAIN:
        verdict, end = "unknown", f"{format_gain(speedup.value)}, but not clearly: more seeds would tell"
    step_share = option.step_seconds / exact_step_seconds(fits, estimate)
    why = (
        f"{estimate.exchange}{format_momentum(estimate.ratio.momentum)} needs {format_ratio(estimate.ratio.value)}"
        f" examples and takes {step_share:.2g} of the time a step: {end}"
    )
    peak_bytes = memory.peak_bytes.get(estimate.exchange)
    return replace(
        build_estimate_verdict(estimate, costs, peak_bytes, verdict, why),
        examples_ratio=estimate_interval(estimate.ratio.value, estimate.ratio.draws),
        max_speedup=bound.max_speedup,
    )


def build_estimate_verdict(
    estimate: ExchangeEstimate, costs: ExchangeCosts, peak_bytes: float | None, verdict: VerdictName, why: str
) -> ExchangeVerdict:
    """Return a verdict on a way of exchange with what its estimate tells."""
    option = estimate.option
    return ExchangeVerdict(
        exchange=estimate.exchange,
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        lr=option.lr,
        momentum=estimate.ratio.momentum,
        step_seconds=option.step_seconds,
        sent_bytes=costs.sent_bytes(estimate.exchange, option.workers),
        encode_seconds=costs.encode_seconds_per_step(estimate.exchange),
        seconds=estimate.seconds,
        speedup=estimate.speedup,
        peak_bytes=peak_bytes,
        verdict=verdict,
        why=why,
        measured=option.measured,
    )


def exact_step_seconds(fits: ExactFits, estimate: ExchangeEstimate) -> float:
    """Return the seconds of a step with exact sums at the setting of an estimate."""
    setting = (estimate.option.nodes, estimate.option.workers, estimate.option.batch)
    return next(
        option.step_seconds for option in fits.options if (option.nodes, option.workers, option.batch) == setting
    )


def judge_failure(fits: ExactFits, costs: ExchangeCosts, ratio: ExamplesRatio) -> ExchangeVerdict:
    """Return the verdict on a way of exchange whose runs were mostly cut off before the target."""
    bound = bound_exchange(fits, costs, ratio.key.exchange)
    verdict = judge_bound(costs, bound, MemoryFacts())
    is_slower = bound.max_speedup < MIN_GAIN * ratio.value
    return replace(
        verdict,
        lr=ratio.lr,
        momentum=ratio.momentum,
        verdict="slower" if is_slower else "unknown",
        why=f"{bound.exchange} reached the target in {ratio.reached} of {ratio.pairs} runs, after"
        f" {ratio.value:.2g} times the examples of exact sums; it could be sooner with less than"
        f" {bound.max_speedup:.2g} times",
    )


def judge_bound(costs: ExchangeCosts, bound: ExchangeBound, memory: MemoryFacts) -> ExchangeVerdict:
    """Return the verdict on a way of exchange without training runs, by its optimistic bound."""
    verdict: VerdictName = "unknown" if bound.may_gain else "no gain"
    why = f"{bound.exchange}: {format_bound(bound.max_speedup)} even if it needed no more examples"
    if bound.may_gain and parse_exchange(bound.exchange).learns_exactly:
        why = f"{bound.exchange} was not timed: up to {format_gain(bound.max_speedup)} by its closed form"
    elif bound.may_gain:
        why = f"{bound.exchange} was not tried: up to {format_gain(bound.max_speedup)} if it needed no more examples"
    if costs.waits_for_data(bound.exchange, bound.step_settings):
        why += "; its steps wait for batches"
    if not memory.does_fit(bound.exchange):
        verdict, why = "does not fit", f"{bound.exchange} {explain_memory(memory, bound.exchange)}"
    return ExchangeVerdict(
        exchange=bound.exchange,
        nodes=bound.nodes,
        workers=bound.workers,
        batch=bound.batch,
        step_seconds=bound.step_seconds,
        sent_bytes=costs.sent_bytes(bound.exchange, bound.workers),
        encode_seconds=costs.encode_seconds_per_step(bound.exchange),
        max_speedup=bound.max_speedup,
        peak_bytes=memory.peak_bytes.get(bound.exchange),
        verdict=verdict,
        why=why,
    )


def judge_unknown(fits: ExactFits, name: str, gap: str) -> ExchangeVerdict:
    """Return the verdict on a way of exchange of which something is missing, at the setting of exact sums."""
    option = fits.reference
    return ExchangeVerdict(
        exchange=name,
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        verdict="unknown",
        why=f"{name} cannot be predicted without {gap}",
    )


def explain_memory(memory: MemoryFacts, name: str) -> str:
    """Say how much memory a way of exchange needs, and how much there is."""
    return explain_excess(memory.peak_bytes[name], memory.limit_bytes or 0.0)


def format_ratio(ratio: float) -> str:
    """Format how many examples are needed as times those of exact sums, or as many where two digits show none."""
    return "as many" if f"{ratio:.2g}" == "1" else f"{ratio:.2g} times the"


def format_momentum(momentum: float | None) -> str:
    """Format the momentum of a way of exchange as the end of a phrase; empty where it is that of exact sums."""
    return "" if momentum is None else f" with momentum {momentum:g}"


def format_gain(speedup: float) -> str:
    """Format how much sooner the target is reached: in percent below twice, else in times."""
    return f"{speedup - 1:.0%} sooner" if speedup < 2 else f"{speedup:.2g} times sooner"


def format_bound(max_speedup: float) -> str:
    """Format a bound that is too small for trials."""
    return f"no gain, at most {max_speedup - 1:.0%} sooner" if max_speedup > 1 else "no gain, not sooner"
