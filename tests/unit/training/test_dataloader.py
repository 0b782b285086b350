"""What a worker is fed: the pictures of its places, whatever is made at a time and wherever it begins."""

from itertools import islice

import pytest
import torch

from equipoise.config import Trial
from equipoise.training import sampler as stream
from equipoise.training.dataloader import Feed
from equipoise.workloads import workload

CPU = torch.device("cpu")


def fed(trial, places, step, count):
    """The first `count` micro-batches from `step` on."""
    return list(islice(Feed(trial, workload(trial), CPU).training(places, step), count))


@pytest.mark.parametrize("batch", [1, 32, 250])
def test_micro_batches_are_those_of_the_stream_one_by_one(batch):
    trial = Trial(workload="digits", workers=2, batch=batch, accumulate=2)
    made, mine = workload(trial), range(2, 4)
    feed, examples = Feed(trial, made, CPU), len(made.train)
    micros = stream.micro_batches(trial.seed, examples, batch, trial.places, mine, 5)
    for micro, (images, labels) in zip(micros, fed(trial, mine, 5, 70), strict=False):
        picked = torch.from_numpy(micro.examples)
        pictures = made.augment(made.train.pictures[picked], trial.seed, micro.epochs, micro.examples)
        torch.testing.assert_close(images, feed.scaled(pictures), rtol=0, atol=0)
        assert torch.equal(labels, made.train.labels[picked])


@pytest.mark.parametrize("step", [1, 16, 33])
def test_a_run_that_goes_on_is_fed_what_it_would_have_been(step):
    trial = Trial(workload="digits", batch=16)
    whole = fed(trial, range(1), 0, step + 80)[step:]
    for (images, labels), (expected, truth) in zip(fed(trial, range(1), step, 80), whole, strict=True):
        assert torch.equal(images, expected)
        assert torch.equal(labels, truth)
