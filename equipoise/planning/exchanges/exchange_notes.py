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
NO_EXACT_RUNS = "rows with an empty column exchange in --system and --statistical"


def add_notes(
    document: PlanDocument,
    chosen: ExchangeCandidate,
    candidates: Sequence[ExchangeCandidate],
    predictor: ExchangePredictor,
    runs: pd.DataFrame | None,
) -> PlanDocument:
    """Return the document with what speaks for its exchange against the others of the table, and what is missing."""
    names = predictor.rows.exchange.drop_duplicates().tolist()
    notes = describe_unknown_names(names)
    if document.plan is None:
        return replace(document, warnings=(*document.warnings, *notes))
    others = [candidate for candidate in candidates if candidate.name != chosen.name and candidate.document.plan]
    excess = {candidate.name for candidate in list_excess_candidates(candidates)}
    unplanned = sorted({*names} - {candidate.name for candidate in others} - {chosen.name} - excess)
    notes += [
        f"no plan with {name or EXACT_TEXT}: {find_gap(name, chosen.rate, predictor, runs)}" for name in unplanned
    ]
    if not parse_exchange(chosen.name).learns_exactly and find_best_exact(candidates) is None:
        gap = find_gap("", chosen.rate, predictor, runs) if "" in names else f"it needs {NO_EXACT_RUNS}"
        notes.append(f"{chosen.name} could not be compared with exact sums, which may be faster: {gap}")
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
    if not parts:
        return f"no training run of --statistical has {f'the exchange {name}' if name else 'exact sums'}"
    rows = predictor.rows[predictor.rows.exchange == name]
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
