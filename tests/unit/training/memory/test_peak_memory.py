"""The peak of a step is that of its tensors, to the byte where they are known, and the same for what holds them."""

import gc
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.memory.live_tensors import count_live_bytes
from equipoise.training.memory.peak_memory import AllocationTrace, trace_allocations
from tests.support.block_models import residual
from tests.support.gloo import run_with_gloo

CONFIG = TrainConfig(workload="tests.support.block_models:residual", batch_size=8, max_examples=32)
FLOAT_BYTES = 4


def test_peak_of_known_tensors_is_exact():
    def compute():
        first = torch.ones(1000)
        second = torch.ones(500)
        del first
        return second + torch.ones(100).sum()  # 500 and 500 at the end

    total, allocations = trace_allocations(compute)
    assert len(total) == 500 and allocations == (FLOAT_BYTES * 1500, FLOAT_BYTES * 500)


def test_a_trace_counts_in_parts_what_it_counts_at_once():
    with AllocationTrace() as trace:
        first = torch.ones(1000)
        trace.flush()
        assert (trace.peak, trace.taken) == (FLOAT_BYTES * 1000, FLOAT_BYTES * 1000)
        del first
        second = torch.ones(300)
        trace.flush()
        assert trace.taken == FLOAT_BYTES * 300
        del second
    assert (trace.peak, trace.taken) == (FLOAT_BYTES * 1000, 0)


@pytest.mark.parametrize("sync", ["local:8", "diloco:8"])
def test_steps_of_an_interval_are_counted_one_by_one(sync, monkeypatch):
    flushes = []
    flush = AllocationTrace.flush
    monkeypatch.setattr(AllocationTrace, "flush", lambda trace: flushes.append(flush(trace)))
    options = {"sync": sync, "workers": 2, "max_examples": 128}
    peak = first_peak(**options)
    assert len(flushes) == 16  # of two workers, one after the other
    monkeypatch.setattr(AllocationTrace, "flush", lambda trace: None)
    assert first_peak(**options) == pytest.approx(peak, rel=0.01)  # what an earlier training left is freed in between


def test_each_held_storage_counts_once():
    layer = nn.Linear(10, 10, bias=False)
    layer.weight.grad = torch.zeros(10, 10)
    moments = {layer.weight: {"momentum": torch.zeros(10, 10)}}
    hidden = torch.zeros(50)
    layer.register_forward_hook(lambda *_: hidden)
    layer.register_forward_hook(partial(print, torch.zeros(7)))
    layer.view = layer.weight.detach()[:2]  # no memory of its own
    assert count_live_bytes(layer, moments) == FLOAT_BYTES * (300 + 50 + 7)
    assert count_live_bytes(layer, without=(nn.Linear,)) == 0
    assert count_live_bytes(torch.empty(300, device="meta")) == 0  # a shape alone


def first_peak(**options):
    gc.collect()  # of earlier tests, which would be freed meanwhile
    lap = next(Training(replace(CONFIG, **options), residual()).laps())
    return lap.peak_bytes


def test_momentum_adds_a_copy_of_the_weights():
    parameters = sum(p.numel() for p in residual().model().parameters())
    without, sgd, adamw = first_peak(momentum=0.0), first_peak(), first_peak(optimizer="adamw")
    assert sgd - without == FLOAT_BYTES * parameters
    assert adamw - sgd == pytest.approx(FLOAT_BYTES * parameters, abs=FLOAT_BYTES * 30)  # and counts of steps


def test_a_process_measures_its_first_step_alone():
    training = Training(replace(CONFIG, eval_every=16), residual())
    peaks = [lap.peak_bytes for lap in training.laps()]
    assert peaks[0] and peaks[1:] == [None]
    assert training.step == 4


def find_shared_peak():
    import torch.distributed as dist

    config = replace(CONFIG, workers=dist.get_world_size(), noise_scale_every=0)
    lap = next(Training(config, residual()).laps())
    return lap.peak_bytes


def test_workers_report_the_largest_peak(tmp_path):
    peaks = run_with_gloo(2, tmp_path, find_shared_peak)
    assert peaks[0] and peaks[0] == peaks[1]


def test_recomputed_blocks_lower_the_peak():
    kept = first_peak(noise_scale_every=0)
    assert first_peak(noise_scale_every=0, recompute=True) < kept
