"""Plans from tables with several ways of exchange or rates: each is fitted by itself, and the fastest one wins.

Rows of different exchanges are never fitted together. Exact sums need the same examples whatever their algorithm; every
other way of exchange needs training runs of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.planning.build_document import PlanRequest, build_plan_document, fit_runs, fit_step_times
from equipoise.planning.document import PlanDocument
from equipoise.planning.energy.step_energy import SETTING_COLUMNS, StepEnergy, fit_step_energy
from equipoise.planning.exchange_choice.table_verdicts import (
    ExchangeCandidate,
    add_exchange_verdicts,
    does_win,
    find_best_exact,
)
from equipoise.planning.exchanges.algorithm_times import assign_nodes, fit_algorithm_links, replace_ring_messages
from equipoise.planning.exchanges.compose_exchange import ClusterSetting, ExchangeComposer
from equipoise.planning.exchanges.exact_rows import read_momentum, select_runs
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.exchange_notes import add_notes, suggest_exchange
from equipoise.planning.exchanges.predict_exchanges import (
    ExchangePredictor,
    find_fastest_exchanges,
    predict_exchanges,
)
from equipoise.planning.memory.memory_verdicts import add_memory_verdicts
from equipoise.planning.replanning.fit_memory import digest_table, recall_result

NUMBER_COLUMNS = ("bits_per_second", "sent_bytes", "encode_seconds")
PREDICTION_REMEDY = (
    "give --system with columns bits_per_second and sent_bytes, or leave out --predict-exchange and --predict-rate"
)
GAP_REMEDY = "add these measurements to the tables, or leave out --predict-exchange and --predict-rate"


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeRequest:
    """Exchanges and rates to predict beside those measured."""

    names: tuple[str, ...] = ()
    """ways of exchange"""
    rates: tuple[float, ...] = ()
    """bits per second of the slowest link"""
    sums: pd.DataFrame | None = field(default=None, repr=False)
    """sums timed alone: rows of algorithm, ranks, bytes and seconds"""


class ExchangePlan(NamedTuple):
    """Plan with the measurements of the exchange and the rate that it is for."""

    document: PlanDocument
    request: PlanRequest


def build_exchange_plan(request: PlanRequest, wanted: ExchangeRequest) -> ExchangePlan:
    """Build a plan from tables whose rows may have several ways of exchange and rates, with further predictions.

    The plan is for the first of the rates requested, or for the rate with most rows.
    """
    if request.system is None:
        if wanted.names or wanted.rates:
            raise EquipoiseError("option-missing", "cannot predict exchanges without step times", PREDICTION_REMEDY)
        return ExchangePlan(build_plan_document(request), request)
    rows = fill_exchange_columns(request.system)
    name, rate = find_base(rows)
    predictor = ExchangePredictor(rows=rows)
    if name == "" and (wanted.names or wanted.rates):
        predictor = replace(predictor, composer=build_composer(request, predictor, rate, wanted.sums))
    plan_rate = wanted.rates[0] if wanted.rates else rate
    candidates = list(plan_each_exchange(request, predictor, plan_rate, wanted.sums))
    chosen = choose_plan(candidates, by_cost=request.deadline_seconds is not None)
    if chosen is None:
        base = select_rows(request, predictor, name, rate, wanted.sums)
        chosen = ExchangeCandidate(name=name, rate=rate, request=base, document=build_plan_document(base))
    document = add_predictions(chosen, request, predictor, wanted)
    document = add_exchange_verdicts(document, chosen, candidates, predictor)
    document = add_notes(document, chosen, candidates, predictor, request.statistical)
    return ExchangePlan(add_memory_verdicts(document, chosen, candidates), chosen.request)


def fill_exchange_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with all columns on the exchange: exact sums and NaN where the table has none."""
    missing = {name: np.nan for name in NUMBER_COLUMNS if name not in rows}
    return rows.assign(**missing, exchange=rows.exchange if "exchange" in rows else "")


def find_base(rows: pd.DataFrame) -> tuple[str, float | None]:
    """Return the exchange and the rate to fit: exact sums if there are any, with most rows, then the highest rate."""
    exact = rows[rows.exchange == ""]
    name = "" if len(exact) else str(rows.exchange.value_counts(sort=True).index[0])
    counts = rows[rows.exchange == name].bits_per_second.value_counts()
    return name, float(max(counts[counts == counts.max()].index)) if len(counts) else None


def build_composer(
    request: PlanRequest, predictor: ExchangePredictor, rate: float | None, sums: pd.DataFrame | None
) -> ExchangeComposer | None:
    """Fit the exact rows at a rate, from which exchanges without rows are put together."""
    fit = fit_step_times(select_rows(request, predictor, "", rate, sums))
    links = {} if sums is None else fit_algorithm_links(assign_nodes(sums, predictor.rows))
    return None if fit is None else ExchangeComposer(fit=fit, rate=rate, rows=predictor.rows, links=links)


def select_rows(
    request: PlanRequest, predictor: ExchangePredictor, name: str, rate: float | None, sums: pd.DataFrame | None
) -> PlanRequest:
    """Return the request with the step times of one exchange at one rate, measured or moved there from other rates."""
    rows = predictor.rows[predictor.rows.exchange == name]
    is_at_rate = rows.bits_per_second.isna() if rate is None else rows.bits_per_second == rate
    at_rate = rows[is_at_rate | (rows.workers == 1)]  # one worker uses no link
    timed = set(at_rate[["nodes", "workers", "batch"]].itertuples(index=False, name=None))
    moved, energy = [], fit_step_energy(rows)
    firsts = rows.drop_duplicates(["nodes", "workers", "batch"])
    for index, (nodes, workers, batch) in zip(firsts.index, list_settings(firsts), strict=True):
        if (nodes, workers, batch) not in timed:
            seconds = predictor.predict_seconds(ClusterSetting(nodes, workers, batch), name, rate)
            if isinstance(seconds, float):
                moved.append(replace_step_time(firsts.loc[[index]], seconds, energy))
    exchange = request.exchange if parse_exchange(name).is_exact else None
    if sums is not None and name in ("", "ring") and "gradient_bytes" in rows:
        exchange = replace_ring_messages(exchange, assign_nodes(sums, rows), float(rows.gradient_bytes.median()))
    return replace(request, system=pd.concat([at_rate, *moved], ignore_index=True), exchange=exchange)


def replace_step_time(row: pd.DataFrame, seconds: float, energy: StepEnergy | None) -> pd.DataFrame:
    """Return a row with the time of its step at another rate, and with the energy of such a step if that is known."""
    nodes, workers, batch = (int(row[column].iloc[0]) for column in SETTING_COLUMNS)
    joules = energy.estimate_joules(nodes, workers, batch, seconds, has_exact_sums=False) if energy else np.nan
    return row.assign(seconds=seconds, **({"joules": joules} if "joules" in row else {}))


def plan_each_exchange(
    request: PlanRequest, predictor: ExchangePredictor, rate: float | None, sums: pd.DataFrame | None
) -> Iterator[ExchangeCandidate]:
    """Yield a plan with each exchange of the table at a rate, as far as training runs tell its examples."""
    if request.statistical is None:
        return
    for name in predictor.rows.exchange.drop_duplicates().tolist():
        selected = select_rows(request, predictor, name, rate, sums)
        if selected.system is None or selected.system.empty:
            continue
        for workers, runs in select_runs(request.statistical, name):
            steps = selected.system if workers is None else selected.system[selected.system.workers == workers]
            if len(steps) and len(runs):
                part = replace(selected, system=steps, statistical=runs)
                step_fit, curve = fit_step_times(part), fit_runs(part, runs)
                document = set_momentum(build_plan_document(part, step_fit, curve), read_momentum(runs))
                rated = predictor.rows[predictor.rows.exchange == name].bits_per_second
                is_measured = rate is None or bool((rated == rate).any())
                yield ExchangeCandidate(
                    name=name,
                    rate=rate,
                    request=part,
                    document=document if is_measured else mark_predicted(document),
                    step_fit=step_fit,
                    curve=curve,
                )


def set_momentum(document: PlanDocument, momentum: float | None) -> PlanDocument:
    """Return a document whose plan and runner-up have the momentum of the training runs."""
    if momentum is None:
        return document
    plan, runner_up = (entry and replace(entry, momentum=momentum) for entry in (document.plan, document.runner_up))
    return replace(document, plan=plan, runner_up=runner_up)


def mark_predicted(document: PlanDocument) -> PlanDocument:
    """Return a document whose step times were moved to another rate, with nothing marked as measured."""
    single = {
        name: entry and replace(entry, measured=False)
        for name, entry in (("plan", document.plan), ("runner_up", document.runner_up), ("knee", document.knee))
    }
    system = document.system
    steps = tuple(replace(row, measured=False) for row in system.predictions) if system else ()
    return replace(
        document,
        **single,  # type: ignore[arg-type]
        front=tuple(replace(entry, measured=False) for entry in document.front),
        options=tuple(replace(entry, measured=False) for entry in document.options),
        system=system and replace(system, predictions=steps),
    )


def choose_plan(candidates: Sequence[ExchangeCandidate], by_cost: bool) -> ExchangeCandidate | None:
    """Return the candidate whose plan is fastest, or cheapest; None if no exchange has a plan.

    What is not clearly faster than exact sums of whole models is left out, since it may be luck.
    """
    exact = find_best_exact(candidates)
    if exact:
        free = [each for each in candidates if each.is_exact or (by_cost and not each.is_sharded)]
        candidates = [each for each in candidates if each in free or does_win(each, exact)]
    plans = [
        (candidate.document.plan.worker_seconds if by_cost else candidate.document.plan.seconds.value, index)
        for index, candidate in enumerate(candidates)
        if candidate.document.plan
    ]
    return candidates[min(plans)[1]] if plans else None


def add_predictions(
    chosen: ExchangeCandidate, request: PlanRequest, predictor: ExchangePredictor, wanted: ExchangeRequest
) -> PlanDocument:
    """Return the chosen document with its exchange, and with predictions for all other exchanges and rates."""
    document, rows = chosen.document, predictor.rows
    if document.system is None:
        return document
    own = tuple(replace(row, exchange=chosen.name, bits_per_second=chosen.rate) for row in document.system.predictions)
    names = list(dict.fromkeys(parse_exchange(name).name for name in wanted.names)) or rows.exchange.unique().tolist()
    rates = list(dict.fromkeys(wanted.rates)) or list_rates(rows)
    measured = set(list_settings(rows))
    shapes = {ClusterSetting(*shape, int(batch)) for shape in request.cluster_shapes for batch in rows.batch.unique()}
    settings = sorted(measured | shapes)
    memory = request.memory if predictor.composer is None else None
    key = ("exchanges", digest_table(rows), *settings, *names, *rates) if memory else ()
    others, gaps = recall_result(memory, key, (), lambda: predict_exchanges(predictor, settings, names, rates))
    if (wanted.names or wanted.rates) and not others:
        require_known_exchanges(names, rows)
        raise EquipoiseError("measurements-missing", f"cannot predict any exchange: {gaps[0]}", GAP_REMEDY)
    known = {(row.nodes, row.workers, row.batch, row.exchange, row.bits_per_second) for row in own}
    others = [
        row for row in others if (row.nodes, row.workers, row.batch, row.exchange, row.bits_per_second) not in known
    ]
    return replace(
        document,
        plan=document.plan and document.plan.with_exchange(chosen.name),
        runner_up=document.runner_up and document.runner_up.with_exchange(chosen.name),
        system=replace(
            document.system,
            exchange=chosen.name,
            bits_per_second=chosen.rate,
            predictions=(*own, *others),
            missing=(*document.system.missing, *(gaps if wanted.names or wanted.rates else ())),
            fastest_exchanges=tuple(find_fastest_exchanges((*own, *others))),
        ),
    )


def require_known_exchanges(names: Sequence[str], rows: pd.DataFrame) -> None:
    """Refuse a name that is no way of exchange and that no row has, such as a mistyped one."""
    for name in names:
        if parse_exchange(name).sync is None and name not in set(rows.exchange):
            similar = suggest_exchange(name)
            raise EquipoiseError(
                "option-choice",
                f"cannot predict the exchange {name!r}: no row of --system has it, and it is no way of exchange whose"
                " bytes are known",
                f"did you mean {similar}?" if similar else "write it such as local:8, bf16, tree or local:8/bf16/tree",
            )


def list_settings(rows: pd.DataFrame) -> list[ClusterSetting]:
    """Return the setting of each row."""
    return [ClusterSetting(*row) for row in rows[["nodes", "workers", "batch"]].to_numpy(int).tolist()]


def list_rates(rows: pd.DataFrame) -> list[float | None]:
    """Return the rates of a table; None stands for the unknown rate of its rows."""
    rates = sorted(rows.bits_per_second.dropna().unique().tolist())
    return rates or [None]
