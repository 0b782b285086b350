"""A line that waits for other workers in every step is found with its code; the library's own exchange is none."""

import linecache
import time

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.profiling.device_reads import DeviceReads
from equipoise.profiling.skipped_calls import StepsWithoutCall
from equipoise.profiling.stepped_training import SteppedTraining, gather_objects, gather_rows
from equipoise.profiling.sync_points import CallPlace, SyncWatch, summarize_calls
from equipoise.workloads import load_workload
from tests.support import profiled_workloads
from tests.support.gloo import run_with_gloo

CPU = torch.device("cpu")
FIRST, SECOND = CallPlace("all_reduce", "mine.py", 3), CallPlace("barrier", "mine.py", 9)


def watch_steps(steps):
    config = TrainConfig(workload="tests.support.profiled_workloads:with_reduced_loss", workers=2, batch_size=16)
    stepped = SteppedTraining(config, load_workload(config), CPU)
    with SyncWatch().watch() as watch:
        stepped.take_block(steps)
    points = summarize_calls(gather_objects(watch.calls), steps)
    stepped.take_block(1)  # process groups work as before
    (point,) = points
    skipping = StepsWithoutCall(stepped, point.file, point.line)
    with SyncWatch().watch() as unskipped:
        skipping.take_block(2)
    return points, gather_rows([float(dist.get_rank())], CPU), len(unskipped.calls)


def test_line_of_a_scalar_all_reduce_is_found(tmp_path):
    for points, rows, skipped_calls in run_with_gloo(2, tmp_path, watch_steps, 3):
        (point,) = points
        assert (point.operation, point.code, point.calls) == ("all_reduce", "dist.all_reduce(mean)", 1)
        assert point.file == profiled_workloads.__file__ and point.place == f"profiled_workloads.py:{point.line}"
        assert linecache.getline(point.file, point.line).strip() == point.code
        assert 0 < point.seconds <= point.longest_seconds
        assert rows == [[0.0], [1.0]] and skipped_calls == 0


def test_call_costs_what_it_takes_the_worker_that_waits_least():
    early, late = [[FIRST, 5.0], [SECOND, 1.0], [FIRST, 1.0]], [[FIRST, 1.0], [SECOND, 2.0], [FIRST, 3.0]]
    first, second = summarize_calls([early, late], steps=2)
    assert (first.operation, first.seconds, first.longest_seconds, first.calls) == ("all_reduce", 1.0, 3.0, 1.0)
    assert (second.seconds, second.longest_seconds, second.calls) == (0.5, 1.0, 0.5)


def test_calls_in_a_row_cost_what_workers_that_are_slow_in_turn_would_not_wait():
    slow_first, slow_second = [[FIRST, 1.0], [FIRST, 4.0]], [[FIRST, 3.0], [FIRST, 1.0]]
    (point,) = summarize_calls([slow_first, slow_second], steps=1)
    assert (point.seconds, point.longest_seconds, point.calls) == (4.0, 5.0, 2)
    (point,) = summarize_calls([slow_first, slow_second], steps=2)  # one in each step, which ends with an exchange
    assert (point.seconds, point.calls) == (1.0, 1)


def test_calls_between_those_of_another_line_are_no_row():
    workers = [[[FIRST, a], [SECOND, 0.5], [FIRST, b]] for a, b in ((1.0, 4.0), (3.0, 1.0))]
    first, second = summarize_calls(workers, steps=1)
    assert (first.seconds, first.calls, second.seconds) == (2.0, 2, 0.5)


def test_calls_that_only_some_workers_make_count_for_these():
    (point,) = summarize_calls([[], [[FIRST, 4.0]]], steps=1)
    assert (point.seconds, point.longest_seconds) == (4.0, 4.0)
    (point,) = summarize_calls([[[FIRST, 4.0]], [[FIRST, 1.0], [FIRST, 1.0]]], steps=1)
    assert (point.seconds, point.calls) == (2.0, 2)
    assert summarize_calls([[], []], steps=1) == ()


def test_single_worker_has_its_rows_alone():
    assert gather_rows([1.0, 2.0], CPU) == [[1.0, 2.0]] and gather_objects("x") == ["x"]


def test_part_of_a_step_gets_the_seconds_of_its_calls():
    watch = SyncWatch(lambda: "forward")
    watch.add_call(FIRST, time.perf_counter() - 1.0)
    assert watch.seconds_by_part["forward"] == watch.calls[0][1] > 1.0


@pytest.mark.parametrize(
    ("read", "operation"), [(lambda values: values.sum().item(), "item"), (Tensor.nonzero, "nonzero")]
)
def test_reads_from_a_device_are_found(read, operation):
    values, watch = torch.ones(3), SyncWatch()
    with DeviceReads(watch, "cpu"):
        read(values)
        values + 1  # reads nothing
    places = [place for place, _ in watch.calls]
    assert {place.operation for place in places} == {operation} and {place.file for place in places} == {__file__}
