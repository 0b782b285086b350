"""Workloads that lose time in a known way, requested as module:attribute like those of users."""

import time
from dataclasses import replace
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.base import Split
from equipoise.workloads.digits import digits

READ_SECONDS = 0.02  # of an example: far longer than the step of so small a model


def reduce_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy, and let all workers agree on its mean, as a loop that prints it does."""
    loss = F.cross_entropy(logits, labels)
    mean = loss.detach().clone()
    if dist.is_initialized():
        dist.all_reduce(mean)
    assert mean.item() > 0
    return loss


def with_reduced_loss(config: TrainConfig) -> Workload:
    """Return digits with a loss that is all-reduced and read in every step."""
    return replace(digits(config), loss=reduce_loss)


class SlowRows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows of a split that take long to read."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(READ_SECONDS)
        rows, labels = self.split.read_examples([index])
        return rows[0], labels[0]


def flatten_images(split: Split) -> Split:
    """Return a split with each image as a row of numbers from 0 to 1."""
    return Split(split.inputs.flatten(1).float() / 255, split.targets)


def with_slow_loader(config: TrainConfig) -> Workload:
    """Return rows of digits of which those for training are read one by one, slowly, by another process."""
    images = digits(config)
    splits = {name: flatten_images(getattr(images, name)) for name in ("train", "validation", "reference", "test")}
    return Workload(
        name="slow-rows",
        model=lambda: nn.Linear(256, 10),
        target=None,
        loss=F.cross_entropy,
        metric=lambda scores, labels: (scores.argmax(1) == labels).double(),
        **splits | {"train": Split(SlowRows(splits["train"]))},
    )


def with_wide_layer(config: TrainConfig) -> Workload:
    """Return digits with a model of equal layers, of which the third is four times as wide."""
    widths = (256, 256, 256, 1024, 256, 256)
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return replace(digits(config), model=lambda: nn.Sequential(nn.Flatten(), *layers, nn.Linear(256, 10)))
