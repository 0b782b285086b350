"""Verdicts on ways of exchange of a plan's tables that do not fit in memory, and on those to use in their place."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from equipoise.planning.build_document import build_plan_document
from equipoise.planning.document import PlanDocument, PlanOptionEntry
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict
from equipoise.planning.exchange_choice.table_verdicts import ExchangeCandidate, find_best_exact, judge_candidate
from equipoise.planning.memory.measured_peaks import find_peak
from equipoise.planning.memory.memory_limit import explain_excess, format_memory

WHOLE_MODEL_TEXT = "the whole model"


class ExcessCandidate(NamedTuple):
    """Candidate of which no setting fits in memory, with the plan that it would have, and its smallest setting."""

    candidate: ExchangeCandidate
    least: PlanOptionEntry
    peak_bytes: float

    @property
    def name(self) -> str:
        """Way of exchange."""
        return self.candidate.name


def list_excess_candidates(candidates: Iterable[ExchangeCandidate]) -> list[ExcessCandidate]:
    """Return the candidates that have no plan, and would have one with more memory."""
    planned = {candidate.name for candidate in candidates if candidate.document.plan}
    found: dict[str, ExcessCandidate] = {}
    for candidate in candidates:
        if candidate.name in planned or candidate.request.memory_bytes is None:
            continue
        if (excess := lift_memory_limit(candidate)) is not None:
            found.setdefault(candidate.name, excess)
    return list(found.values())


def lift_memory_limit(candidate: ExchangeCandidate) -> ExcessCandidate | None:
    """Return a candidate with the plan that it would have with more memory; None if memory is not what it lacks."""
    rows = candidate.request.system
    request = replace(candidate.request, memory_bytes=None)
    document = build_plan_document(request, candidate.step_fit, candidate.curve)
    if document.plan is None or rows is None:
        return None
    peaks = [(find_peak(rows, option.workers, option.batch), index) for index, option in enumerate(document.options)]
    known = [(peak, index) for peak, index in peaks if peak is not None]
    if not known:
        return None
    least, index = min(known)
    return ExcessCandidate(replace(candidate, document=document), document.options[index], least)


def add_memory_verdicts(
    document: PlanDocument, chosen: ExchangeCandidate, candidates: Sequence[ExchangeCandidate]
) -> PlanDocument:
    """Return the document with a verdict on each way of exchange that does not fit in memory.

    Where exact sums of whole models are among them, the others are judged again, and the plan says so.
    """
    limit = chosen.request.memory_bytes
    excess = list_excess_candidates(candidates)
    if limit is None or not excess:
        return document
    verdicts = [*document.exchanges, *(judge_excess(each, limit) for each in excess)]
    exact = find_best_exact([each.candidate for each in excess])
    if exact is not None and document.plan is not None and find_best_exact(candidates) is None:
        need = next(each for each in excess if each.name == exact.name)
        reason = f"{exact.name or WHOLE_MODEL_TEXT} {explain_excess(need.peak_bytes, limit)}"
        verdicts = [*judge_without_exact(candidates, exact, chosen, reason), *verdicts]
        document = replace(document, plan=replace(document.plan, why=f"{document.plan.why}; {reason}"))
    return replace(document, exchanges=tuple(verdicts))


def judge_excess(excess: ExcessCandidate, limit_bytes: float) -> ExchangeVerdict:
    """Return the verdict on a way of exchange of which no setting fits, at the setting that needs least."""
    option = excess.least
    return ExchangeVerdict(
        exchange=excess.name,
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        lr=option.lr,
        step_seconds=option.step.seconds,
        peak_bytes=excess.peak_bytes,
        verdict="does not fit",
        why=f"{excess.name or WHOLE_MODEL_TEXT} {explain_excess(excess.peak_bytes, limit_bytes)}",
    )


def judge_without_exact(
    candidates: Sequence[ExchangeCandidate], exact: ExchangeCandidate, chosen: ExchangeCandidate, reason: str
) -> list[ExchangeVerdict]:
    """Return the verdicts on ways of exchange that fit where exact sums do not; `exact` is their plan if they did."""
    planned = [candidate for candidate in candidates if candidate.document.plan]
    ordered = [chosen, *(each for each in planned if each.name != chosen.name)]
    verdicts: dict[str, ExchangeVerdict] = {}
    for candidate in ordered:
        verdict = judge_candidate(candidate, exact, chosen)
        if verdict is None:
            continue
        peak = "" if verdict.peak_bytes is None else f" in {format_memory(verdict.peak_bytes)} a worker"
        if candidate is chosen:
            verdict = replace(verdict, verdict="use", why=f"{candidate.name} fits{peak}; {reason}")
        else:
            why = f"{candidate.name} fits{peak}, but the plan with {chosen.name} is better"
            verdict = replace(verdict, verdict="slower", why=why)
        verdicts.setdefault(candidate.name, verdict)
    return list(verdicts.values())
