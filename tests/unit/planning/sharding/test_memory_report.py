"""The report of a sweep's memory has the closed form of each part at each timed batch, and the measured peaks."""

from types import SimpleNamespace

import pandas as pd
import pytest

from equipoise.planning.sharding.memory_report import build_memory_report
from tests.unit.planning.sharding.test_sharding_verdicts import build_limit, peak

STEPS = pd.DataFrame(
    [(1, 4, 8, 0.1, 4.1e9), (1, 4, 8, 0.1, 4.2e9), (1, 4, 32, 0.2, None), (1, 2, 64, 0.3, 9e9)],
    columns=["nodes", "workers", "batch", "seconds", "peak_bytes"],
)


def build_plan_entry(exchange: str, sharding: str) -> SimpleNamespace:
    return SimpleNamespace(workers=4, batch=16, exchange=exchange, sharding=sharding)


def test_whole_models_are_reported_beside_the_sharding_of_the_plan():
    report = build_memory_report(build_limit(2e9), build_plan_entry("full", "full"), STEPS)
    whole, full = report.ways
    assert (whole.exchange, full.exchange, whole.workers, report.limit_bytes) == ("", "full", 4, 2e9)
    assert [row.batch for row in whole.rows] == [8, 16, 32]  # those of the plan's workers, and its own
    assert [row.measured_bytes for row in whole.rows] == [4.2e9, None, None]
    assert not any(row.measured_bytes for row in full.rows)
    assert [row.total for row in full.rows] == pytest.approx([peak("full", batch) for batch in (8, 16, 32)])
    assert whole.rows[0].weights == 1e9 and full.rows[0].weights == 2.5e8


@pytest.mark.parametrize("plan", [None, build_plan_entry("", "none"), build_plan_entry("local:4", "none")])
def test_other_ways_of_exchange_hold_whole_models(plan):
    report = build_memory_report(build_limit(2e9), plan, STEPS)
    assert [way.exchange for way in report.ways] == [""] and report.ways[0].workers == 4


def test_step_times_without_peaks_have_no_measured_ones():
    report = build_memory_report(build_limit(2e9), None, STEPS.drop(columns="peak_bytes"))
    assert [row.measured_bytes for row in report.ways[0].rows] == [None, None]
