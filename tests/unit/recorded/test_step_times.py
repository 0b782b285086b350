"""Step times predicted from the same timings stay what they were, on one node and on many."""

import numpy as np
import pytest

from equipoise.planning.step_time_fit import fit_step_time
from equipoise.planning.step_time_model import StepSettings
from tests.support.recorded import assert_as_recorded
from tests.unit.planning.test_step_time_fit import (
    BATCH_LADDER,
    EXCHANGE_ROWS,
    FULL_FORM,
    build_exchange_rows,
    build_step_rows,
)

ONE_NODE = [(1, 1), (1, 2), (1, 4)]
MANY_NODES = [*ONE_NODE, (2, 2), (2, 4), (2, 8), (4, 4), (4, 16)]
TIMINGS = {
    "one-node": (ONE_NODE, BATCH_LADDER, EXCHANGE_ROWS[:0], False),
    "one-worker": ([(1, 1)], BATCH_LADDER, EXCHANGE_ROWS[:0], False),
    "two-batches": ([(1, 1), (1, 2), (2, 2), (2, 4)], [8, 64], EXCHANGE_ROWS[:0], False),
    "many-nodes": (MANY_NODES, BATCH_LADDER, EXCHANGE_ROWS[:0], False),
    "two-rings": (MANY_NODES, BATCH_LADDER, EXCHANGE_ROWS[:0], True),
    "exchanges": ([(1, 1), (1, 2), (2, 4)], BATCH_LADDER, build_exchange_rows([(1, 2), (2, 4)]), False),
    "worker-per-node": ([(1, 1), (2, 2), (4, 4), (8, 8)], [16, 64], EXCHANGE_ROWS[:0], False),
}


@pytest.mark.parametrize("name", TIMINGS)
def test_predicted_step_times_are_as_recorded(name):
    shapes, batches, exchanges, two_rings = TIMINGS[name]
    rows = build_step_rows(FULL_FORM._replace(two_rings=two_rings), shapes, batches, noise=0.03, seed=4)
    fit = fit_step_time(rows, exchanges)
    points = np.array([(nodes, workers, 48.0) for nodes, workers in [*MANY_NODES, (8, 8), (8, 64)]])
    settings = StepSettings(*points.T)
    low, high = np.quantile(fit.sample_seconds(settings), (0.1, 0.9), axis=0)
    missing = [str(fit.missing_measurements(int(n), int(w), int(b))) for n, w, b in points]
    values = {
        "parameters": fit.form.parameter_names,
        "seconds": fit.fitted_seconds(settings),
        "beside measurements": fit.shrunk_seconds(StepSettings.from_table(fit.rows)),
        "low": low,
        "high": high,
        "error": fit.relative_error,
        "missing": missing,
    }
    assert_as_recorded(f"step-times-{name}", values, rtol=5e-3)
