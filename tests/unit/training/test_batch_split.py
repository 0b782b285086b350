from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.training.batch_split import depends_on_batch_split
from equipoise.workloads import Split
from equipoise.workloads.digits import digits
from tests.support import any_workloads
from tests.support.any_workloads import TableModel, TinyLanguageModel, build_splits


def build_zero_head_model():
    """A model that begins with equal scores: the loss of every token is the same before the first step."""
    model = TinyLanguageModel()
    nn.init.zeros_(model.head.weight)
    return model


def contrast_with_the_batch(outputs, targets):
    return F.cross_entropy(outputs @ targets.T, torch.arange(len(targets)))


class FunctionalDropout(TableModel):
    def forward(self, numbers, categories):
        return F.dropout(super().forward(numbers, categories), 0.1, self.training)


class BatchCentered(TableModel):
    def forward(self, numbers, categories):
        return super().forward(numbers - numbers.mean(0), categories)


class SinglePrecision(TableModel):
    """Refuses fp64."""

    def forward(self, numbers, categories):
        return self.layers(torch.cat([numbers, self.embedding(categories).flatten(1)], 1).float())


CASES = {
    "table": (any_workloads.table(), False),
    "text": (any_workloads.text(), False),
    "sentences that count the same": (any_workloads.equal_sentences(), False),
    "sentences by their tokens": (any_workloads.sentences(), True),
    "equal scores at first": (any_workloads.sentences(model=build_zero_head_model), True),
    "attention dropout": (any_workloads.text(model=lambda: TinyLanguageModel(dropout=0.1)), True),
    "dropout as a function": (any_workloads.table(model=FunctionalDropout), True),
    "inputs centered by the batch": (any_workloads.table(model=BatchCentered), True),
    "no fp64": (any_workloads.table(model=SinglePrecision), True),
    "sum of losses": (any_workloads.table(loss=lambda a, b: F.mse_loss(a, b, reduction="sum")), True),
    "large losses": (any_workloads.table(loss=lambda a, b: 1e9 * F.mse_loss(a, b)), False),
    "images": (digits(TrainConfig(workload="digits")), False),
    "batch norm": (digits(TrainConfig(workload="digits", model="resnet18", image_size=32)), True),
}


@pytest.mark.parametrize(("workload", "depends"), CASES.values(), ids=CASES)
def test_dependence_on_the_batch_split_is_found_by_trying(workload, depends):
    state = torch.get_rng_state()
    assert depends_on_batch_split(workload) is depends
    assert torch.equal(state, torch.get_rng_state())


def test_contrastive_loss_depends_on_the_batch_split():
    def build(count, seed):
        numbers = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
        return Split(numbers, numbers + 0.1)

    workload = any_workloads.table(
        **build_splits(build), model=lambda: nn.Linear(5, 5), loss=contrast_with_the_batch, score=None
    )
    assert depends_on_batch_split(workload)


def test_two_training_examples_are_halves_of_one():
    total = any_workloads.table(loss=lambda a, b: F.mse_loss(a, b, reduction="sum"))
    assert depends_on_batch_split(replace(total, train=total.train.take_first(2)))


def test_single_training_example_has_no_halves():
    assert not depends_on_batch_split(any_workloads.table(train=any_workloads.table().train.take_first(1)))
