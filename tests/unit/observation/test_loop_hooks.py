"""Tests of hooks on a model: steps that a loop leaves out, and copies of a model that is observed."""

import copy
import io

import pytest
import torch
from torch.nn import functional as F

import equipoise
from tests.support.observed_loops import BATCH, INPUTS, build_small_model, draw_batches, take_steps


@pytest.mark.parametrize("accumulation", [1, 2])
def test_passes_whose_step_a_gradient_scaler_leaves_out_are_no_micro_batches(tmp_path, accumulation):
    model = build_small_model(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", noise_scale_every=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # gradients overflow in the first steps
    steps = 0
    for index, (inputs, labels) in enumerate(draw_batches(16 * accumulation, dtype=torch.float32)):
        scaler.scale(F.cross_entropy(100 * model(inputs), labels) / accumulation).backward()
        if (index + 1) % accumulation == 0:
            before = [parameter.detach().clone() for parameter in model.parameters()]
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += any(not torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    (lap,) = observer.close().laps
    assert 0 < steps < 16
    assert observer.config.grad_accumulation == accumulation
    assert (lap.steps, lap.seen) == (steps, steps * accumulation * BATCH)


def test_norms_of_a_step_follow_passes_that_a_gradient_scaler_threw_away(tmp_path):
    model = build_small_model(torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = equipoise.observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", noise_scale_every=1)
    batches = draw_batches(8, dtype=torch.float32)
    take_steps(model, optimizer, batches[:2], accumulation=2)  # which tells that two passes are a step
    for index, (inputs, labels) in enumerate(batches[2:]):
        F.cross_entropy(model(inputs), labels).backward()
        if index % 2:
            if index > 1:
                optimizer.step()
            optimizer.zero_grad()
    (lap,) = observer.close().laps
    assert (lap.steps, lap.draws) == (3, 2)


@pytest.mark.parametrize("steps_before", [0, 1, 15])
def test_copy_of_an_observed_model_is_not_observed(observe, model, optimizer, steps_before):
    observer = observe()
    take_steps(model, optimizer, draw_batches(steps_before))
    file = io.BytesIO()
    torch.save(model, file)
    copies = copy.deepcopy(model), torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    for other in (*copies, torch.optim.swa_utils.AveragedModel(model)):
        other(torch.zeros(BATCH, INPUTS, dtype=torch.float64)).sum().backward()
    take_steps(model, optimizer, draw_batches(2))
    assert observer.close().laps[-1].seen == (steps_before + 2) * BATCH
    assert b"equipoise" not in file.getvalue()
