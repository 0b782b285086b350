"""Steps are timed whatever the metric is: no target ends a stretch."""

import time
from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.timing.step_bench import StepBench, summarize_stretches
from tests.support.gloo import run_with_gloo

DIGITS = TrainConfig(workload="digits")
FALLING = TrainConfig(workload="tests.support.workloads:with_falling_metric")


@pytest.mark.parametrize(("config", "target"), [(DIGITS, 0.0), (FALLING, 1e9)], ids=["rising metric", "falling metric"])
def test_target_that_any_metric_reaches_does_not_end_the_timing(config, target):
    for trial, workload in (
        (replace(config, target=target), load_workload(config)),
        (config, replace(load_workload(config), target=target)),
    ):
        bench = StepBench(trial, workload, torch.device("cpu"), time.monotonic())
        assert bench.probe(8).step_seconds > 0
        assert bench.time_stretch(8)
        laps = list(islice(bench.start_laps(8, 0.0), 3))  # on a slow machine a stretch may be a single lap
        assert len(laps) == 3 and all(lap.metric is not None for lap in laps)  # it is evaluated as in training


def test_batch_beyond_the_memory_is_known_before_it_is_tried():
    bench = StepBench(DIGITS, load_workload(DIGITS), torch.device("cpu"), time.monotonic())
    assert bench.is_predicted_to_fit(1 << 40)  # nothing is known yet
    assert bench.probe(8) and bench.measured_peaks[8] > bench.gradient_bytes
    assert bench.is_predicted_to_fit(16)
    assert not bench.is_predicted_to_fit(1 << 30) and bench.probe(1 << 30) is None


def test_rows_have_the_peak_of_their_batch():
    bench = StepBench(DIGITS, load_workload(DIGITS), torch.device("cpu"), time.monotonic())
    assert bench.probe(8) and bench.probe(32)
    rows = [summarize_stretches(bench, 1, batch, [bench.time_stretch(batch)] * 2) for batch in (8, 32)]
    assert [row.peak_bytes for row in rows] == [bench.measured_peaks[batch] for batch in (8, 32)]
    assert rows[1].peak_bytes > rows[0].peak_bytes > bench.gradient_bytes
    other = StepBench(DIGITS, load_workload(DIGITS), torch.device("cpu"), time.monotonic())
    other.probes[8] = bench.probes[8]
    assert other.start_laps(8, 0.0) and other.measured_peaks[8] == pytest.approx(bench.measured_peaks[8], rel=0.1)


def time_with_all_reduce(all_reduce):
    """Return the algorithms of the steps that are timed, the kinds of exchanges, and the algorithms chosen before."""
    trial = replace(DIGITS, workers=2, all_reduce=all_reduce)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 256), nn.Linear(256, 10))  # too large for one all-to-all
    workload = replace(load_workload(trial), model=lambda: model)
    bench = StepBench(trial, workload, torch.device("cpu"), time.monotonic())
    assert bench.probe(8).step_seconds > 0
    algorithms = {lap.all_reduce for lap in bench.time_stretch(8)}
    return algorithms, [row.kind for row in bench.time_exchanges(1, 0.1)], bench.chosen_algorithms


def time_with_tree_and_auto():
    return [time_with_all_reduce(name) for name in ("tree", "auto")]


def test_steps_and_exchanges_are_timed_with_the_algorithm_of_the_options(tmp_path):
    first, second = run_with_gloo(2, tmp_path, time_with_tree_and_auto)
    assert first == second
    for algorithms, exchanges, chosen in first:
        assert algorithms == {chosen} and len(chosen) == 1  # the same in all trainings
        assert exchanges[0] == "message" and {*exchanges[1:]} == {"sum"}
    assert first[0][2] == ("tree",)
