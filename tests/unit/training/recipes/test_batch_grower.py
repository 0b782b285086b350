"""A batch that grows: the steps of a plain loop, the same on any number of workers, and resumed to the bit."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.order import example_order
from equipoise.runs.record import Lap, mean_noise_scale
from equipoise.training.loop import Training
from equipoise.training.recipes.batch_grower import BatchGrower, list_laps_of_batch
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

GROWING = TrainConfig(
    workload="digits",
    batch_size=8,
    grow_batch="2@100,6@400",
    target=2.0,
    max_examples=1000,
    eval_every=200,
    precision="fp64",
    augment=False,
)
BATCHES = [8] * 13 + [16] * 19 + [48] * 13  # 104, 408 and 1032 examples


def train_model(config):
    training = Training(config)
    for _ in training.laps():
        pass
    return training.model.state_dict(), training.finished_laps


def largest_difference(first, second):
    return max(float((first[name] - second[name]).norm() / second[name].norm()) for name in first)


def train_by_a_plain_loop(config, batches):
    """Return the weights after steps of these batches over the shuffled examples, by torch's SGD."""
    training = Training(replace(config, grow_batch="none"))
    workload, model = training.workload, training.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=config.momentum)
    count = len(workload.train)
    order = torch.cat([torch.from_numpy(example_order(config.seed, epoch, count).take(0, count)) for epoch in (0, 1)])
    transform, seen = workload.input_transform(torch.device("cpu"), torch.float64), 0
    warmup = workload.warmup_examples(training.config)
    for batch in batches:
        inputs, labels = workload.train.read_examples(order[seen : seen + batch].tolist())
        seen += batch
        optimizer.param_groups[0]["lr"] = training.config.lr * min(1.0, seen / warmup)
        optimizer.zero_grad()
        workload.loss(model(transform(inputs)), labels).backward()
        optimizer.step()
    return model.state_dict()


def test_steps_are_those_of_a_plain_loop_over_growing_batches():
    state, laps = train_model(GROWING)
    assert [batch for lap in laps for batch in [lap.global_batch] * lap.steps] == BATCHES
    assert (laps[-1].seen, laps[-1].step) == (sum(BATCHES), len(BATCHES))
    assert [lap.seen for lap in laps] == [104, 200, 408, 600, 840, 1032]
    assert largest_difference(state, train_by_a_plain_loop(GROWING, BATCHES)) < 1e-12


@pytest.mark.parametrize("changes", [{}, pytest.param({"sharding": "optimizer"}, marks=pytest.mark.slow)])
def test_workers_take_the_steps_of_one(tmp_path, changes):
    alone, laps = train_model(replace(GROWING, grad_accumulation=2, grow_batch="3@200"))
    config = replace(GROWING, workers=2, grow_batch="3@200", **changes)
    for state, worker_laps in run_with_gloo(2, tmp_path, train_model, config):
        assert [(lap.seen, lap.step) for lap in worker_laps] == [(lap.seen, lap.step) for lap in laps]
        assert [lap.loss for lap in worker_laps] == pytest.approx([lap.loss for lap in laps], rel=1e-12)
        assert largest_difference(state, alone) < 1e-12
        # norms are those of the batch of their lap
        for lap in worker_laps:
            assert lap.total_batch == lap.global_batch and lap.local_batch == pytest.approx(lap.global_batch / 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"augment": True, "workload": "tests.support.workloads:with_dropout", "mixup": 0.3},
        {"grow_batch": "auto", "noise_scale_every": 3, "lr": 0.1, "schedule": "cosine"},
    ],
    ids=["stages", "auto"],
)
def test_a_resumed_run_is_bit_equal_before_and_after_the_batch_has_grown(changes):
    config = replace(GROWING, precision="fp32", **changes)
    whole, laps = train_model(config)
    assert len({lap.global_batch for lap in laps}) >= 2
    for num_laps in (1, 3, len(laps) - 1):
        start = Training(config)
        list(islice(start.laps(), num_laps))
        resumed = Training(config)
        resumed.load_state_dict(load(save(start.state_dict())), start.finished_laps)
        list(resumed.laps())
        assert [(lap.seen, lap.loss) for lap in resumed.finished_laps] == [(lap.seen, lap.loss) for lap in laps]
        assert all(torch.equal(value, whole[name]) for name, value in resumed.model.state_dict().items())


def test_the_batch_doubles_after_an_evaluation_that_finds_it_below_the_noise_scale():
    _, laps = train_model(replace(GROWING, grow_batch="auto", noise_scale_every=1, lr=0.1, max_examples=2000))
    assert max(lap.global_batch for lap in laps) > 8
    for count in range(1, len(laps)):
        before, after = laps[count - 1], laps[count]
        noise = mean_noise_scale(list_laps_of_batch(laps[:count]))
        doubles = before.metric is not None and noise is not None and noise > before.global_batch
        assert after.global_batch == before.global_batch * (2 if doubles else 1)


def build_lap(batch, metric=None, variance=0.0):
    """Return a lap whose noise scale is `variance`, for a signal of 1."""
    norms = {"local_norm": 1 + variance / 4, "total_norm": 1 + variance / 8, "local_batch": 4.0, "total_batch": 8}
    examples = {"seen": 2 * batch, "examples": 2 * batch}
    return Lap(step=1, steps=2, **examples, workers=1, seconds=1.0, metric=metric, draws=1, **norms)


@pytest.mark.parametrize(
    ("laps", "factor"),
    [
        ([], 1),
        ([build_lap(8, None, 100.0)], 1),  # not evaluated
        ([build_lap(8, 0.5, 7.0)], 1),
        ([build_lap(8, 0.5, 9.0)], 2),
        ([build_lap(8, 0.5, 1000.0)], 2),  # doubles once
        ([build_lap(8, 0.5, 1000.0), build_lap(16, 0.5, 9.0)], 2),  # what smaller batches measured counts no more
        ([build_lap(16, None, 9.0), build_lap(16, 0.5, 25.0)], 4),  # a mean of 17
        ([build_lap(32, 0.5, 1000.0)], 8),
        ([build_lap(64, 0.5, 1000.0)], 8),  # there are no 128 examples
    ],
)
def test_decision_by_the_noise_scale(laps, factor):
    grower = BatchGrower(replace(GROWING, grow_batch="auto"), max_batch=100)
    assert grower.find_factor(laps) == factor


def test_growth_that_an_exchange_is_not_laid_out_for_is_refused():
    for changes in (
        {"sync": "local:4"},
        {"sync": "server"},
        {"compression": "int8"},
        {"sharding": "full"},
        {"sharding": "tensor:2"},
        {"sharding": "pipeline:2"},
    ):
        with raises_code("option-conflict", "--grow-batch", *(value.partition(":")[0] for value in changes.values())):
            replace(GROWING, workers=2, **changes)
    with raises_code("option-conflict", "--noise-scale-every"):
        replace(GROWING, grow_batch="auto", noise_scale_every=0)


def test_a_batch_that_outgrows_the_examples_is_refused():
    with raises_code("workload-invalid", "1,600", "1,078"):
        Training(replace(GROWING, grow_batch="200@100"))
