"""Tests of the batches a worker trains on: the images of its micro-batches, from any step on."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader
from equipoise.training.sampler import iterate_micro_batches
from equipoise.workloads import load_workload

CPU = torch.device("cpu")


def load_batches(config, micro_indices, step, count):
    """Return the first `count` micro-batches from `step` on."""
    return list(islice(BatchLoader(config, load_workload(config), CPU).train_batches(micro_indices, step), count))


@pytest.mark.parametrize("batch", [1, 32, 250])
def test_loader_yields_the_micro_batches_of_the_sampler(batch):
    config = TrainConfig(workload="digits", workers=2, batch_size=batch, grad_accumulation=2)
    workload, micro_indices = load_workload(config), range(2, 4)
    loader, examples = BatchLoader(config, workload, CPU), len(workload.train)
    micros = iterate_micro_batches(config.seed, examples, batch, config.num_micro_batches, micro_indices, 5)
    for micro, (images, labels) in zip(micros, load_batches(config, micro_indices, 5, 70), strict=False):
        indices = torch.from_numpy(micro.examples)
        augmented = workload.augment.augment_images(
            workload.train.inputs[indices], config.seed, micro.epochs, micro.examples
        )
        torch.testing.assert_close(images, loader.prepare_inputs(augmented), rtol=0, atol=0)
        assert torch.equal(labels, workload.train.targets[indices])


def test_input_bytes_are_those_of_one_example_however_few_there_are():
    config = TrainConfig(workload="digits", batch_size=1)
    workload = load_workload(config)
    one = replace(workload, train=replace(workload.train, inputs=workload.train.inputs[:1]))
    assert BatchLoader(config, one, CPU).input_bytes == workload.train.inputs[0].numel() * 4


@pytest.mark.parametrize("step", [1, 16, 33])
def test_resumed_run_gets_the_batches_of_the_uninterrupted_run(step):
    config = TrainConfig(workload="digits", batch_size=16)
    uninterrupted = load_batches(config, range(1), 0, step + 80)[step:]
    for (images, labels), (expected_images, expected_labels) in zip(
        load_batches(config, range(1), step, 80), uninterrupted, strict=True
    ):
        assert torch.equal(images, expected_images)
        assert torch.equal(labels, expected_labels)


def test_any_micro_batches_can_be_loaded_by_themselves():
    config = TrainConfig(workload="digits", workers=2, batch_size=32, grad_accumulation=2)
    loader, batches = BatchLoader(config, load_workload(config), CPU), load_batches(config, range(4), 0, 80)
    places = [divmod(index, 4) for index in (70, 3, 4, 71, 5)]
    for place, batch in zip(places, loader.load_micro_batches(places), strict=True):
        expected = batches[place[0] * 4 + place[1]]
        for parts in (batch, loader.load_micro_batch(*place)):
            assert all(torch.equal(*pair) for pair in zip(parts, expected, strict=True))
