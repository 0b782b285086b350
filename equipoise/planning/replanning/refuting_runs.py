"""Training runs that refuted a plan, counted in with the measurements that it rested on."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from equipoise.planning.build_document import PlanRequest
from equipoise.planning.confirmation import ConfirmationResult


def add_refuting_runs(request: PlanRequest, runs: Sequence[ConfirmationResult]) -> PlanRequest:
    """Add runs to the tables of a request; a setting with which one missed the target is not planned with again.

    Runs on numbers of workers that the tables no longer have are left out.
    """
    if request.system is None or request.statistical is None:
        return request
    timed_workers = set(request.system.workers)
    runs = [run for run in runs if run.workers in timed_workers]
    if not runs:
        return request
    steps = [
        {"nodes": run.nodes, "workers": run.workers, "batch": run.batch, "seconds": run.step.value}
        for run in runs
        if run.step
    ]
    examples = [
        {"global_batch": run.global_batch, "lr": run.lr, "seed": run.seed, "examples": run.examples.value,
         "reached": int(run.seconds is not None)}
        for run in runs
    ]  # fmt: skip
    return replace(
        request,
        system=pd.concat([request.system, pd.DataFrame(steps)], ignore_index=True),
        statistical=pd.concat([request.statistical, pd.DataFrame(examples)], ignore_index=True),
        excluded_settings=frozenset((run.global_batch, run.lr) for run in runs if run.seconds is None),
    )
