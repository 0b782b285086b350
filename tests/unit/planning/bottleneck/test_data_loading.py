"""Step times whose readers cannot keep up: what they predict, and what is said to limit a plan."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from equipoise.errors import EquipoiseError
from equipoise.planning.bottleneck.bottleneck_text import BOTTLENECK_TEXT
from equipoise.planning.bottleneck.data_loading import fit_loading_seconds, remove_waits
from equipoise.planning.build_document import build_plan_document, read_request
from equipoise.planning.measurements import read_step_times
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.planning.step_time_model import StepSettings
from tests.support.sweep_folders import write_statistical_csv, write_system_csv

FIXED, PER_EXAMPLE, EXCHANGE, READING = 0.02, 1e-4, 0.004, 5e-4  # seconds
CROSSING = FIXED / (READING - PER_EXAMPLE)  # batch of one worker above which reading takes longer


def busy_seconds(workers, batch):
    """Return the seconds of a step whose batch is ready: an all-reduce in a ring, and computing."""
    return FIXED + PER_EXAMPLE * batch + EXCHANGE * 2 * (workers - 1) / workers


def build_steps(reading=READING, read_ahead=1):
    """Return step times of three numbers of workers whose readers take so long for an example."""
    rows = [
        (1, workers, batch, max(busy_seconds(workers, batch), reading * batch), busy_seconds(workers, batch))
        for workers in (1, 2, 4)
        for batch in (8, 16, 32, 64, 128, 256)
    ]
    table = pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "busy"])
    waits = (table.seconds - table.busy).clip(lower=0)
    return table.drop(columns="busy").assign(data_seconds=waits, read_ahead=read_ahead)


def predict(fit, workers, batch):
    return float(fit.fitted_seconds(StepSettings(*(np.array([value], float) for value in (1, workers, batch))))[0])


def test_step_takes_the_longer_of_reading_and_of_computing_with_the_exchange():
    fit = fit_step_time(build_steps())
    assert fit.loading_per_example == pytest.approx(READING)
    for workers in (1, 2, 4, 8):
        for batch in (8, 24, 100, 256):
            expected = max(busy_seconds(workers, batch), READING * batch)
            assert predict(fit, workers, batch) == pytest.approx(expected, rel=0.02)
    batches = np.array([0.9, 1.1]) * CROSSING
    settings = StepSettings(np.ones(2), np.ones(2), batches)
    assert fit.waits_for_data(settings).tolist() == [False, True]
    assert (fit.sample_seconds(settings)[:, 1] > 0.9 * READING * batches[1]).all()


@pytest.mark.parametrize(
    "steps",
    [
        build_steps(read_ahead=0),  # batches in memory, prepared between the steps
        build_steps().drop(columns="read_ahead"),
        build_steps().drop(columns="data_seconds"),
        build_steps(reading=0.0),
    ],
)
def test_rows_without_waits_for_readers_are_fitted_as_they_are(steps):
    fit = fit_step_time(steps)
    assert fit.loading_per_example == 0 == fit_loading_seconds(steps) and remove_waits(steps) is steps
    plain = fit_step_time(steps[["nodes", "workers", "batch", "seconds"]])
    assert fit.parameters == plain.parameters and predict(fit, 2, 64) == predict(plain, 2, 64)
    assert not fit.waits_for_data(StepSettings(np.ones(1), np.ones(1), np.array([1e9]))).any()


def test_plan_whose_steps_wait_for_readers_says_so_and_what_to_do(tmp_path):
    system, statistical = write_system_csv(tmp_path / "system.csv"), write_statistical_csv(tmp_path / "statistical.csv")
    request = read_request(system=system, statistical=statistical)
    before = build_plan_document(request)
    steps = request.system
    loading = 0.01 * steps.batch  # ten times what computing takes
    slow = steps.assign(seconds=loading, data_seconds=loading - steps.seconds, read_ahead=1)
    after = build_plan_document(replace(request, system=slow))
    assert "data loading" not in {option.binding for option in before.options}
    assert "data loading" in {option.binding for option in after.options}
    waiting = next(option for option in after.options if option.binding == "data loading")
    assert waiting.step.seconds == pytest.approx(0.01 * waiting.batch, rel=0.02)
    if after.plan.binding == "data loading":
        assert BOTTLENECK_TEXT["data loading"] in after.plan.why


@pytest.mark.parametrize(("column", "value"), [("read_ahead", "2"), ("read_ahead", "yes"), ("data_seconds", "-1")])
def test_wrong_columns_on_loading_are_refused(tmp_path, column, value):
    table = tmp_path / "system.csv"
    build_steps().astype(str).assign(**{column: value}).to_csv(table, index=False)
    with pytest.raises(EquipoiseError) as refused:
        read_step_times(table)
    assert refused.value.code == "table-invalid" and column in str(refused.value)
