"""Blocks of steps in turns: batches that were read while another training took its turn are not timed."""

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.profiling.step_turns import time_slowest
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.workloads import load_workload

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
