"""Mixup against the formulas of its paper, and the same steps on any number of workers."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader
from equipoise.training.loop import Training
from equipoise.training.recipes.mixup_loader import MixupLoader
from equipoise.workloads import load_workload
from equipoise.workloads.recipes.mixup import blend_inputs, blend_labels, draw_mixup
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

MIXED = TrainConfig(workload="digits", batch_size=8, mixup=0.4, target=2.0, max_examples=320, precision="fp64")
CPU = torch.device("cpu")


def train_model(config):
    training = Training(config)
    for _ in training.laps():
        pass
    return training.model.state_dict(), [lap.loss for lap in training.finished_laps]


def largest_difference(first, second):
    return max(float((first[name] - second[name]).norm() / second[name].norm()) for name in first)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_of_blends_is_the_blend_of_both_losses(smoothing):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    labels, partners = torch.tensor([0, 1, 2, 3, 3, 1]), torch.tensor([5, 1, 0, 4, 3, 2])
    targets = blend_labels(labels, 0.3, partners, 4, torch.float64)
    first, second = (F.cross_entropy(logits, y, label_smoothing=smoothing) for y in (labels, labels[partners]))
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
    torch.testing.assert_close(loss, 0.3 * first + 0.7 * second, rtol=1e-14, atol=0)
    # as timm's `mixup_target` has them, whose partners come in reverse order
    off, on = smoothing / 4, 1 - smoothing + smoothing / 4
    one_hot = torch.full((6, 4), off, dtype=torch.float64).scatter_(1, labels[:, None], on)
    reversed_places = torch.arange(5, -1, -1)
    expected = 0.3 * one_hot + 0.7 * one_hot.flip(0)
    blended = blend_labels(labels, 0.3, reversed_places, 4, torch.float64) * (1 - smoothing) + off
    torch.testing.assert_close(blended, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(
        blend_inputs(logits, 0.3, reversed_places), 0.3 * logits + 0.7 * logits.flip(0), rtol=1e-14, atol=1e-15
    )


def test_shares_are_those_of_a_beta_distribution_and_partners_a_permutation():
    draws = [draw_mixup(7, step, micro_index, 0.4, 5) for step in range(1000) for micro_index in range(2)]
    shares = np.array([share for share, _ in draws])
    assert len(set(shares)) == 2000 and shares.min() >= 0 and shares.max() <= 1
    assert shares.mean() == pytest.approx(0.5, abs=0.03)
    assert shares.var() == pytest.approx(0.25 / 1.8, rel=0.1)  # 1 / (4 (2 a + 1))
    assert all(sorted(partners) == [0, 1, 2, 3, 4] for _, partners in draws)
    assert draw_mixup(7, 3, 1, 0.4, 5)[0] == draws[7][0] != draw_mixup(8, 3, 1, 0.4, 5)[0]


@pytest.mark.parametrize("changes", [{}, {"channels_last": True}])
def test_batches_are_blends_of_the_plain_ones_in_any_order_of_access(changes):
    config = replace(MIXED, workers=2, grad_accumulation=2, **changes)
    workload = load_workload(config)
    loader, plain = MixupLoader(config, workload, CPU), BatchLoader(config, workload, CPU)
    batches = list(islice(loader.train_batches(range(1, 3), 5), 6))
    places = [(step, index) for step in (5, 6, 7) for index in (1, 2)]
    for (step, index), (inputs, targets) in zip(places, batches, strict=True):
        x, y = plain.load_micro_batch(step, index)
        share, partners = draw_mixup(config.seed, step, index, config.mixup, 8)
        one_hot = F.one_hot(y, 10).double()
        torch.testing.assert_close(inputs, share * x + (1 - share) * x[partners], rtol=1e-14, atol=1e-14)
        torch.testing.assert_close(targets, share * one_hot + (1 - share) * one_hot[partners], rtol=1e-14, atol=0)
        assert inputs.is_contiguous(memory_format=torch.channels_last) or not config.channels_last
        again = loader.load_micro_batch(step, index)
        assert torch.equal(again[0], inputs) and torch.equal(again[1], targets)
    for batch, expected in zip(loader.load_micro_batches(places[::-1]), batches[::-1], strict=True):
        assert torch.equal(batch[0], expected[0]) and torch.equal(batch[1], expected[1])


@pytest.mark.parametrize("sync", ["step", pytest.param("local:2", marks=pytest.mark.slow)])
def test_workers_take_the_steps_of_one(tmp_path, sync):
    config = replace(MIXED, label_smoothing=0.1, workers=2, sync=sync)
    results = run_with_gloo(2, tmp_path, train_model, config)
    alone, losses = train_model(config)
    for state, worker_losses in results:
        assert largest_difference(state, alone) < 1e-13
        assert worker_losses == pytest.approx(losses, rel=1e-13)
    plain, _ = train_model(replace(config, mixup=0.0))
    assert largest_difference(plain, alone) > 1e-3


def test_a_resumed_run_blends_the_same_examples():
    config = replace(MIXED, eval_every=80)
    whole, losses = train_model(config)
    start = Training(config)
    list(islice(start.laps(), 2))
    resumed = Training(config)
    resumed.load_state_dict(start.state_dict(), start.finished_laps)
    for _ in resumed.laps():
        pass
    assert all(torch.equal(resumed.model.state_dict()[name], value) for name, value in whole.items())
    assert [lap.loss for lap in resumed.finished_laps] == losses


def test_a_single_worker_measures_its_noise_scale_on_blends():
    laps = list(Training(replace(MIXED, noise_scale_every=1)).laps())
    assert all(lap.draws == lap.steps for lap in laps)


def test_texts_and_categories_are_not_blended(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b,y\n" + "".join(f"{i % 7 + 0.5},{'uvw'[i % 3]},{'ny'[i % 2]}\n" for i in range(200)))
    with raises_code("option-conflict", "its inputs are not numbers alone"):
        load_workload(TrainConfig(workload="table", data=str(table), label="y", mixup=0.2))
    with raises_code("option-conflict", "its loss is not the cross-entropy of classes"):
        load_workload(TrainConfig(workload="table", data=str(table), label="a", mixup=0.2))
    with raises_code("option-conflict", "omit --mixup"):
        load_workload(TrainConfig(workload="text", mixup=0.2))


def test_rows_of_numbers_are_blended(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b,y\n" + "".join(f"{i % 7},{i % 11},{'ny'[i % 2]}\n" for i in range(200)))
    config = TrainConfig(workload="table", data=str(table), label="y", mixup=0.2, batch_size=8, max_examples=64)
    assert all(lap.loss > 0 for lap in Training(config).laps())
