"""The plan of a sweep within a limit of memory, with its verdicts on shardings."""

from collections.abc import Sequence
from dataclasses import replace

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.confirmation import ConfirmationResult
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exact_fits import fit_exact_sums
from equipoise.planning.parameter_servers.worker_speeds import list_seconds_by_worker
from equipoise.planning.sharding.sharding_verdicts import add_sharding_verdicts
from jobs.ray_tune.exchanges.exchange_facts import ExchangeFacts
from jobs.ray_tune.exchanges.plan_exchanges import refute_verdict


def limit_memory(exact: PlanRequest, facts: ExchangeFacts | None) -> PlanRequest:
    """Return the measurements with exact sums with the limit of memory, and the peak of each setting."""
    memory = facts.memory if facts else None
    if memory is None or exact.system is None:
        return exact
    return replace(exact, system=memory.fill_peaks(exact.system), memory_bytes=memory.limit_bytes)


def add_memory_verdicts(
    document: PlanDocument, exact: PlanRequest, facts: ExchangeFacts, lost_runs: Sequence[ConfirmationResult] = ()
) -> PlanDocument:
    """Return the plan with verdicts on shardings, and with the plan of the one to use.

    `exact` are the measurements with exact sums, as `limit_memory` returns them. A sharding of `lost_runs` refuted a
    plan: it is not used again.
    """
    fits = fit_exact_sums(replace(exact, memory_bytes=None))
    if facts.memory is None or fits is None:
        return document
    costs = facts.build_costs(fits.step_fit, list_seconds_by_worker(exact.system))
    lost = {run.exchange for run in lost_runs}
    document = add_sharding_verdicts(document, exact, fits, costs, facts.memory, facts.shardings, lost)
    verdicts = [
        refute_verdict(replace(verdict, verdict="use"), lost_runs) if verdict.exchange in lost else verdict
        for verdict in document.exchanges
    ]
    return replace(document, exchanges=tuple(verdicts))
