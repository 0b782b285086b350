"""The plan of a sweep with its verdicts on other ways of exchange."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from equipoise.formatting import format_number, format_range
from equipoise.planning.build_document import PlanRequest
from equipoise.planning.confirmation import ConfirmationResult
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exact_fits import fit_exact_sums
from equipoise.planning.exchange_choice.exchange_estimates import build_exchange_entry
from equipoise.planning.exchange_choice.exchange_map import build_exchange_map, find_switches
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeVerdict
from equipoise.planning.exchange_choice.exchange_verdicts import judge_exchanges
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from equipoise.planning.exchanges.exact_rows import select_exact_runs, select_exact_steps
from equipoise.planning.parameter_servers.worker_speeds import list_seconds_by_worker
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.exchange_trials import ANY_WORKERS


def select_exact_request(request: PlanRequest) -> PlanRequest:
    """Return the measurements of a request that were made with exact sums."""
    return replace(
        request,
        system=None if request.system is None else select_exact_steps(request.system),
        statistical=None if request.statistical is None else select_exact_runs(request.statistical),
    )


def list_exchange_runs(request: PlanRequest) -> pd.DataFrame:
    """Return all training runs with columns for their exchange and workers."""
    runs = request.statistical
    if runs is None:
        return pd.DataFrame([])
    if "exchange" not in runs:
        return runs.assign(exchange="", workers=ANY_WORKERS)
    return runs.assign(workers=runs.workers.fillna(ANY_WORKERS).astype(int))


def add_sweep_verdicts(
    document: PlanDocument,
    exact: PlanRequest,
    all_runs: pd.DataFrame,
    facts: ExchangeFacts,
    lost_runs: Sequence[ConfirmationResult] = (),
) -> PlanDocument:
    """Return the plan of exact sums with verdicts on other ways of exchange, and with the plan of the one to use.

    `exact` are the measurements with exact sums, `all_runs` those of `list_exchange_runs`. Of `lost_runs` those with
    other ways of exchange refuted a plan: then exact sums stay the plan.
    """
    fits = fit_exact_sums(exact)
    if fits is None or document.plan is None:
        return document
    costs, ratios = facts.build_costs(fits.step_fit, list_seconds_by_worker(exact.system)), fit_ratio_table(all_runs)
    choice = judge_exchanges(fits, costs, ratios, facts.candidates)
    verdicts = tuple(refute_verdict(verdict, lost_runs) for verdict in choice.verdicts)
    document = replace(
        document,
        exchanges=verdicts,
        switches_at=find_switches(fits, costs, ratios),
        exchange_map=build_exchange_map(fits, costs, ratios),
    )
    if choice.winner is None or any(run.exchange for run in lost_runs):
        return document
    why = next(verdict.why for verdict in choice.verdicts if verdict.exchange == choice.winner.exchange)
    plan = build_exchange_entry(fits, choice.winner, why)
    return replace(document, plan=plan, runner_up=document.plan)


def refute_verdict(verdict: ExchangeVerdict, lost_runs: Sequence[ConfirmationResult]) -> ExchangeVerdict:
    """Return a verdict that counts in that a training run refuted it."""
    own = [run for run in lost_runs if run.exchange == verdict.exchange]
    if verdict.verdict != "use" or not own:
        return verdict
    run = own[-1]
    took = "missed the target" if run.seconds is None else f"took {format_number(run.seconds)} s"
    return replace(
        verdict,
        verdict="slower",
        why=f"a training run with {verdict.exchange} {took} where"
        f" {format_range(run.predicted.low, run.predicted.high)} s were predicted, or longer than one with exact sums",
    )
