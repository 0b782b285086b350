"""Blocks of steps in turns: batches that were read while another training took its turn are not timed."""

import time
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from equipoise.config import TrainConfig
from equipoise.profiling.step_turns import ALONE_PASSES, PassesAlone, time_slowest
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.workloads import load_workload
from tests.support.gloo import run_with_gloo

SLOW_ROWS = "tests.support.profiled_workloads:with_slow_loader"


class CountingTraining(SteppedTraining):
    """Training that notes the steps of its blocks."""

    def __init__(self, **options):
        config = TrainConfig(batch_size=8, **options)
        workload = load_workload(config)
        super().__init__(config.with_defaults(workload.defaults), workload, torch.device("cpu"))
        self.blocks = []

    def take_block(self, count):
        self.blocks.append(count)
        return super().take_block(count)


@pytest.mark.parametrize(("threads", "accumulation", "expected"), [(1, 1, 2), (2, 1, 4), (2, 3, 2)])
def test_steps_whose_batches_were_read_in_a_pause_come_before_a_timed_block(threads, accumulation, expected):
    stepped = CountingTraining(workload=SLOW_ROWS, threads=threads, grad_accumulation=accumulation)
    assert time_slowest(stepped, 3) > 0
    assert stepped.blocks == [expected, 3]


def test_block_of_a_training_in_memory_has_no_steps_before_it():
    stepped = CountingTraining(workload="digits")
    time_slowest(stepped, 3)
    assert stepped.blocks == [3]


def count_passes_of_unequal_workers():
    """Return how many passes a turn has on this worker, where the second one takes 30 ms longer."""
    config = TrainConfig(workload="digits", workers=2, batch_size=8)
    workload = load_workload(config)

    def loss(outputs, targets):
        time.sleep(0.03 * dist.get_rank())
        return workload.loss(outputs, targets)

    slowed = replace(workload, loss=loss)
    stepped = SteppedTraining(config.with_defaults(workload.defaults), slowed, torch.device("cpu"))
    return PassesAlone(stepped).repeats


def test_unequal_workers_take_as_many_passes_in_a_turn(tmp_path):
    first, second = run_with_gloo(2, tmp_path, count_passes_of_unequal_workers)
    assert first == second < ALONE_PASSES
