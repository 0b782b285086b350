"""Tests of observing what Accelerate has prepared: the model and the wrapped optimizer, as they are."""

import pytest
import torch
from torch.nn import functional as F

from equipoise import observe
from equipoise.number_bounds import MIN_LEARNING_RATE
from tests.support.observed_loops import BATCH, build_small_model, compute_gradient, draw_batches

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: make test-frameworks")


def test_accumulated_steps_of_a_prepared_model_are_observed(tmp_path):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    plain = build_small_model()
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=MIN_LEARNING_RATE))
    batches = draw_batches(8)
    with observe(model, optimizer, batch_size=BATCH, out=tmp_path / "run", noise_scale_every=1) as observer:
        for inputs, labels in batches:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(inputs), labels))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    (lap,) = observer.laps
    rows = torch.stack([compute_gradient(build_small_model(), batch) for batch in batches[2:]])
    pairs = rows.view(3, 2, -1).mean(1)
    assert (lap.steps, lap.draws, observer.config.grad_accumulation) == (4, 3, 2)
    assert lap.local_norm == pytest.approx(float(rows.square().sum(1).mean()), rel=1e-9)
    assert lap.total_norm == pytest.approx(float(pairs.square().sum(1).mean()), rel=1e-9)
