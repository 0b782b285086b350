"""What a worker is fed: the pictures of its places, whatever is made at a time and wherever it begins."""

from itertools import islice

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader
from equipoise.training.sampler import iterate_micro_batches
from equipoise.workloads import load_workload

CPU = torch.device("cpu")


def fed(trial, places, step, count):
    """The first `count` micro-batches from `step` on."""
    return list(islice(BatchLoader(trial, load_workload(trial), CPU).train_batches(places, step), count))


@pytest.mark.parametrize("batch", [1, 32, 250])
def test_micro_batches_are_those_of_the_stream_one_by_one(batch):
    trial = TrainConfig(workload="digits", workers=2, batch_size=batch, grad_accumulation=2)
    made, mine = load_workload(trial), range(2, 4)
    feed, examples = BatchLoader(trial, made, CPU), len(made.train)
    micros = iterate_micro_batches(trial.seed, examples, batch, trial.num_micro_batches, mine, 5)
    for micro, (images, labels) in zip(micros, fed(trial, mine, 5, 70), strict=False):
        picked = torch.from_numpy(micro.examples)
        pictures = made.augment(made.train.pictures[picked], trial.seed, micro.epochs, micro.examples)
        torch.testing.assert_close(images, feed.normalize(pictures), rtol=0, atol=0)
        assert torch.equal(labels, made.train.labels[picked])


@pytest.mark.parametrize("step", [1, 16, 33])
def test_a_run_that_goes_on_is_fed_what_it_would_have_been(step):
    trial = TrainConfig(workload="digits", batch_size=16)
    whole = fed(trial, range(1), 0, step + 80)[step:]
    for (images, labels), (expected, truth) in zip(fed(trial, range(1), step, 80), whole, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, truth)
