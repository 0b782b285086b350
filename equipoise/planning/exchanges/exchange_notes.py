"""What a reader should know of a plan with several ways of exchange: which it was compared with, and what it lacks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches

import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_bit_rate, format_number
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.table_verdicts import ExchangeCandidate, find_best_exact
from equipoise.planning.exchanges.compose_exchange import ClusterSetting
from equipoise.planning.exchanges.exact_rows import select_runs
from equipoise.planning.exchanges.exchange_name import AXES, parse_exchange
from equipoise.planning.exchanges.predict_exchanges import EXACT_TEXT, ExchangePredictor
from equipoise.planning.exchanges.training_options import require_trainable
from equipoise.planning.memory.memory_verdicts import list_excess_candidates

MIN_SIMILARITY = 0.75  # of a part of a name to a known one: one letter in four is wrong
KNOWN_PARTS = [name for names in AXES.values() for name in names]


def add_notes(
    document: PlanDocument,
    chosen: ExchangeCandidate,
    candidates: Sequence[ExchangeCandidate],
    predictor: ExchangePredictor,
    runs: pd.DataFrame | None,
) -> PlanDocument:
    """Return the document with what speaks for its exchange against the others of the table, and what is missing."""
    names = predictor.rows.exchange.drop_duplicates().tolist()
    notes = [*describe_unknown_names(names), *describe_unused_runs(names, runs)]
    if document.plan is None:
        return replace(document, warnings=(*document.warnings, *notes))
    others = [candidate for candidate in candidates if candidate.name != chosen.name and candidate.document.plan]
    excess = {candidate.name for candidate in list_excess_candidates(candidates)}
    unplanned = sorted({*names} - {candidate.name for candidate in others} - {chosen.name} - excess)
    if not parse_exchange(chosen.name).learns_exactly and find_best_exact(candidates) is None:
        gap = find_gap("", chosen.rate, predictor, runs)
        notes.append(f"{chosen.name} could not be compared with exact sums, which may be faster: {gap}")
        unplanned = [name for name in unplanned if name]
    notes += [
        f"no plan with {name or EXACT_TEXT}: {find_gap(name, chosen.rate, predictor, runs)}" for name in unplanned
    ]
    notes += describe_missing_workers(chosen, runs)
    try:
        require_trainable(chosen.name, document.plan.workers)
    except EquipoiseError as error:
        notes.append(f"equipoise train cannot use this plan: {error.problem}")
    document = replace(document, warnings=(*document.warnings, *notes))
    return add_reason(document, chosen.name, others) if len(names) > 1 else document


def add_reason(document: PlanDocument, name: str, others: Iterable[ExchangeCandidate]) -> PlanDocument:
    """Return a document whose plan says which way of exchange it takes, and how long the others would."""
    if document.plan is None:
        return document
    times = [
        f"{candidate.name or EXACT_TEXT} {format_number(plan.seconds.value)} s"
        for candidate in others
        if (plan := candidate.document.plan)
    ]
    text = f"exchange: {name or EXACT_TEXT}" + (f", against {', '.join(times)}" if times else "")
    return replace(document, plan=replace(document.plan, why=f"{document.plan.why}; {text}"))


def find_gap(name: str, rate: float | None, predictor: ExchangePredictor, runs: pd.DataFrame | None) -> str:
    """Return why there is no plan with a way of exchange of the table."""
    parts = [] if runs is None else [(workers, part) for workers, part in select_runs(runs, name) if len(part)]
    value = f"{name} in its column exchange" if name else "an empty column exchange"
    if not parts:
        return f"--statistical has no row with {value}"
    rows = predictor.rows[predictor.rows.exchange == name]
    if rows.empty:
        return f"--system has no row with {value}"
    timed = {int(workers) for workers in rows.workers}
    trained = {workers for workers, _ in parts if workers is not None}
    if trained and len(trained) == len(parts) and not trained & timed:
        return f"it was timed on {join_counts(timed)} workers and trained on {join_counts(trained)}"
    settings = [ClusterSetting(*row) for row in rows[["nodes", "workers", "batch"]].to_numpy(int).tolist()]
    for setting in settings:
        if isinstance(gap := predictor.predict_seconds(setting, name, rate), str):
            at_rate = "" if rate is None else f" at {format_bit_rate(rate / 8)}"
            return f"its step times{at_rate} need {gap}"
    return "its training runs do not tell the examples to the target"


def describe_unused_runs(names: Sequence[str], runs: pd.DataFrame | None) -> list[str]:
    """Return a sentence on the ways of exchange of training runs that no step time has, or none."""
    if runs is None or "exchange" not in runs:
        return []
    unused = [name for name in runs.exchange.drop_duplicates() if name and name not in names]
    texts = []
    for name in unused:
        similar = suggest_exchange(name) or "".join(get_close_matches(name, [*filter(None, names)], 1, MIN_SIMILARITY))
        texts.append(f"{name!r}{f' (did you mean {similar}?)' if similar else ''}")
    if not texts:
        return []
    return [f"training runs with {', '.join(texts)} are not used: --system has no row with that in its column exchange"]


def describe_missing_workers(chosen: ExchangeCandidate, runs: pd.DataFrame | None) -> list[str]:
    """Return a sentence on training runs that do not say how many workers averaged their weights, or none."""
    method, rows = parse_exchange(chosen.name), chosen.request.system
    if method.interval_family is None or runs is None or rows is None or rows.workers.nunique() < 2:
        return []
    own = runs[runs.exchange == chosen.name] if "exchange" in runs else runs
    if "workers" in own and own.workers.notna().all():
        return []
    return [
        f"training runs with {chosen.name} do not say in a column workers how many there were, on which their examples"
        " depend: they count for any number"
    ]


def join_counts(counts: Iterable[int]) -> str:
    """Return numbers in words, in order: `2, 4`."""
    return ", ".join(map(str, sorted(counts)))


def describe_unknown_names(names: Iterable[str]) -> list[str]:
    """Return a sentence on the names of a table that are no known ways of exchange, or none."""
    labels = [name for name in names if parse_exchange(name).sync is None]
    if not labels:
        return []
    similar = {name: suggest_exchange(name) for name in labels}
    texts = [f"{name!r} (did you mean {similar[name]}?)" if similar[name] else repr(name) for name in labels]
    verb = "is no known way of exchange" if len(labels) == 1 else "are no known ways of exchange"
    return [
        f"{', '.join(texts)} {verb}, so that only what the rows say is known of {'it' if len(labels) == 1 else 'them'}"
    ]


def suggest_exchange(name: str) -> str:
    """Return the way of exchange that a misspelt name probably means, or ""."""
    parts = []
    for part in name.lower().split("/"):
        head, separator, number = part.strip().partition(":")
        similar = get_close_matches(head, KNOWN_PARTS, 1, MIN_SIMILARITY)
        parts.append(f"{similar[0] if similar else head}{separator}{number}")
    suggestion = "/".join(parts)
    try:
        return suggestion if suggestion != name and parse_exchange(suggestion).sync is not None else ""
    except EquipoiseError:
        return ""
