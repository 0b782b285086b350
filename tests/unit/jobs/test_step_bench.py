"""Steps are timed whatever the metric is: no target ends a stretch."""

import time
from dataclasses import replace

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.workloads import load_workload
from jobs.timing.step_bench import StepBench

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
        laps = bench.time_stretch(8)
        assert len(laps) > 1 and all(lap.metric is not None for lap in laps)  # it is evaluated as in training
