"""Workloads for tests, requested as module:attribute like those of users."""

import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.workloads import Workload
from equipoise.workloads.digits import digits
from equipoise.workloads.vending import vending

ALL_AUGMENTATIONS = Augment(
    shift=3,
    flip=True,
    crop=0.3,
    distort=0.2,
    brightness=0.5,
    contrast=0.5,
    saturation=0.5,
    hue=0.3,
    kelvin=(3000, 9000),
    reflection=0.4,
    blur=1.5,
    noise=0.05,
)


def with_dropout(trial: TrainConfig) -> Workload:
    """Return digits with a model that has two dropout layers."""
    return replace(
        digits(trial),
        model=lambda: nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10)
        ),
    )


def with_batch_norm(trial: TrainConfig) -> Workload:
    """Return digits with a model that has batch normalisation."""
    return replace(
        digits(trial),
        model=lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)
        ),
    )


def with_convolutions(trial: TrainConfig) -> Workload:
    """Return digits with convolutions over several channels, whose weights depend on the memory layout."""
    return replace(
        digits(trial),
        model=lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)
        ),
    )


class PartlyTrainedModel(nn.Module):
    """Linear model with one layer that is not used and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(256, 10)
        self.idle = nn.Linear(4, 4)
        self.frozen = nn.Linear(10, 10).requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.body(images.flatten(1)))


def with_unused(trial: TrainConfig) -> Workload:
    """Return digits with a model of which some parts are not trained."""
    return replace(digits(trial), model=PartlyTrainedModel)


def with_little_memory(trial: TrainConfig) -> Workload:
    """Return digits with a loss that runs out of memory for more than 32 training examples."""

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if len(labels) > 32 and logits.requires_grad:
            raise torch.OutOfMemoryError("as a GPU says it")
        return nn.functional.cross_entropy(logits, labels)

    return replace(digits(trial), loss=loss)


def with_falling_metric(trial: TrainConfig) -> Workload:
    """Return digits whose metric is the cross-entropy, of which less is better."""

    def cross_entropy_of_each(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.double(), labels, reduction="none")

    return replace(digits(trial), metric=cross_entropy_of_each, lower_is_better=True, target=0.2)


def without_target(trial: TrainConfig) -> Workload:
    """Return digits without a target, which train their number of examples."""
    return replace(digits(trial), target=None)


def with_all_variations(trial: TrainConfig) -> Workload:
    """Return the vending workload with images of 32 pixels and every kind of augmentation."""
    return replace(vending(replace(trial, image_size=32)), augment=ALL_AUGMENTATIONS)


class SleepyModel(nn.Module):
    """Model of three layers, of which the first has most weights, that is slower on later ranks while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(256, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.Linear(16, 10)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training and dist.is_initialized():
            time.sleep(0.002 * dist.get_rank() ** 2)
        return self.layers(images)


def with_unequal_speeds(trial: TrainConfig) -> Workload:
    """Return digits with a model whose training is slower on later ranks."""
    return replace(digits(trial), model=SleepyModel)
