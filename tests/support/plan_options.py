"""Options of a plan from step times and a curve that are known."""

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.plan import (
    ClusterShape,
    enumerate_options,
)
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepTimeForm

MIN_EXAMPLES, CRITICAL_BATCH = 2e6, 4000.0  # examples, and examples per step
SECONDS_PER_EXAMPLE, EXCHANGE_SECONDS = 1e-5, 0.02  # computing, and exchanging per step
WORKERS = 4


def build_step_fit(g, exchange_seconds=EXCHANGE_SECONDS):
    volume = exchange_seconds * WORKERS / (2 * (WORKERS - 1))
    parameters = {"a": 0.0, "c": SECONDS_PER_EXAMPLE, "local_alpha": 0.0, "local_volume": volume, "g": g}
    rows = pd.DataFrame(
        [(1, n, b, 1.0) for n in (1, 2, WORKERS) for b in (1, 100_000)],
        columns=["nodes", "workers", "batch", "seconds"],
    )
    form = StepTimeForm(local_terms=("alpha", "volume"), has_overlap=True)
    return StepTimeFit(
        form=form,
        parameters=parameters,
        relative_error=0.0,
        rows=rows,
        parameter_draws=[parameters],
        residuals=np.zeros(1),
    )


def build_curve(batches=(64, 100_000)):
    log_parameters = np.log(MIN_EXAMPLES), np.log(CRITICAL_BATCH)
    log_examples = log_parameters[0] + np.log1p(np.array(batches) / CRITICAL_BATCH)
    columns = {"lr": 0.1, "log_examples": log_examples, "error": 0.01, "runs": 3, "reached": 1.0}
    columns |= {"squares": 0.0002, "own_free": 2}
    batch_summary = pd.DataFrame(columns, index=list(batches))
    log_parameter_draws = np.tile(log_parameters, (100, 1))
    return ExamplesCurve(
        best_lr_runs=batch_summary,
        batch_summary=batch_summary,
        left_out_batches=[],
        log_parameters=log_parameters,
        log_parameter_draws=log_parameter_draws,
        seed_noise=0.01,
        lack_of_fit_sd=0.0,
    )


def enumerate_all_options(g=1.0):
    shapes, batches = [ClusterShape(1, 1), ClusterShape(1, 2), ClusterShape(1, WORKERS)], [2**k for k in range(6, 16)]
    return enumerate_options(build_step_fit(g, exchange_seconds=2e-4), build_curve(), shapes, batches)
