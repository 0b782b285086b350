"""Operations of layers in an observed loop, against those of their shapes and of a profile that starts its own run."""

import pytest
import torch

import equipoise
from equipoise.config import TrainConfig
from equipoise.observation.profiling.loop_profiler import PROFILED_BLOCK_STEPS
from equipoise.profiling.layer_work import count_layer_work
from equipoise.training.dataloader import BatchLoader
from equipoise.training.initialization.shared_model import build_shared_model
from equipoise.workloads import load_workload
from tests.support.observed_loops import (
    BATCH,
    SMALL_MODEL_OPERATIONS,
    draw_batches,
    list_operations,
    read_profile,
    take_steps,
)

FIRST_LAP, TRACED = 4, 2
ENOUGH_STEPS = FIRST_LAP + PROFILED_BLOCK_STEPS + 2 + TRACED


@pytest.mark.parametrize("accumulation", [1, 2])
def test_layers_have_the_operations_of_their_shapes(observe, model, optimizer, tmp_path, accumulation):
    observer = observe(lap_steps=FIRST_LAP, profile_steps=TRACED)
    take_steps(model, optimizer, draw_batches(accumulation * ENOUGH_STEPS), accumulation=accumulation)
    observer.close()
    report = read_profile(tmp_path / "run")
    assert list_operations(report.layers) == SMALL_MODEL_OPERATIONS
    assert report.limits.flop_per_second > 0 and report.limits.bytes_per_second > 0
    assert not torch._C._len_torch_dispatch_stack()  # the counter is gone


def test_convolutions_have_the_operations_that_a_profile_of_the_command_counts(tmp_path):
    config = TrainConfig(workload="digits", batch_size=BATCH)
    workload, device = load_workload(config), torch.device("cpu")
    config = config.with_defaults(workload.defaults)
    network = build_shared_model(config, workload, device, workers=1).model
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    options = {"batch_size": BATCH, "out": tmp_path / "run", "lap_steps": FIRST_LAP, "profile_steps": TRACED}
    images, labels = next(BatchLoader(config, workload, device).train_batches(range(1), 0))
    with equipoise.observe(network, optimizer, **options):
        for _ in range(ENOUGH_STEPS):
            workload.loss(network(images), labels).backward()
            optimizer.step()
    names = ("name", "kind", "forward_flop", "backward_flop")
    observed, expected = (
        [tuple(getattr(layer, name) for name in names) for layer in layers]
        for layers in (read_profile(tmp_path / "run").layers, count_layer_work(config, workload, device))
    )
    assert observed == expected and sum(row[2] > 0 for row in observed) >= 4


def test_error_in_the_step_whose_operations_are_counted_leaves_no_counter(model, optimizer, tmp_path):
    options = {"batch_size": BATCH, "out": tmp_path / "run", "lap_steps": FIRST_LAP, "profile_steps": TRACED}
    with pytest.raises(ZeroDivisionError), equipoise.observe(model, optimizer, **options):
        take_steps(model, optimizer, draw_batches(FIRST_LAP + PROFILED_BLOCK_STEPS))
        assert torch._C._len_torch_dispatch_stack() == 1
        take_steps(model, optimizer, [(draw_batches(1)[0][0], 1 // 0)])
    assert not torch._C._len_torch_dispatch_stack() and not model[0]._forward_hooks
