"""Definition of a workload: data in four splits, a model, a loss, a metric and a target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.runs.target import Target

MAX_EPOCHS = 50  # default limit of a training run that does not reach its target


class ImageSequence(Protocol):
    """Sequence of images that are read on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor:
        """Return one image: uint8 (channels, height, width)."""


@dataclass(frozen=True)
class Split:
    """Images and labels of one split of the data."""

    pictures: Tensor | ImageSequence
    """images as uint8 (examples, channels, height, width), or a sequence that reads one at a time"""
    labels: Tensor
    """index of the class of each example, int64 (examples,)"""

    def __len__(self) -> int:
        return len(self.labels)


def top1_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return 1 for each example whose highest score is its label's, else 0; the mean is the top-1 accuracy."""
    return (logits.argmax(1) == labels).double()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Learning task: splits, model, loss, metric, target, augmentation.

    A workload of your own is a function that takes a `TrainConfig` and returns a `Workload`; `--workload` names it as
    module:attribute. Images reach the model as (uint8 / 255 - mean) / std, channel by channel.
    """

    name: str
    """name of the workload, and of its published model"""
    classes: Sequence[str]
    """class names in the order of the labels"""
    train: Split
    """what the model learns from"""
    validation: Split
    """split on which the metric is measured that decides when to stop"""
    reference: Split
    """held out from training: the reference profile of drift detection"""
    test: Split
    """evaluated once, at the end"""
    model: Callable[[], nn.Module]
    """builds a new model with weights drawn from torch's default generator"""
    target: float | None
    """value of the metric on the validation split at which training stops; None to train --max-examples"""
    mean: Sequence[float]
    """mean of each channel, as a fraction of 255"""
    std: Sequence[float]
    """standard deviation of each channel, as a fraction of 255"""
    augment: Augment | None = None
    """random changes of training images; None for none"""
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    """maps (logits, labels) to the mean loss of a batch"""
    metric: Callable[[Tensor, Tensor], Tensor] = top1_correct
    """maps (logits, labels) to one value per example, whose mean is the metric"""
    lower_is_better: bool = False
    """whether a lower metric is a better one, as with an error"""
    false_alarm_split: Split | None = None
    """examples distributed as the reference, to count false drift alarms on; the validation split if not given"""

    def run_target(self, config: TrainConfig) -> Target:
        """Return the target of a run with these options."""
        value = self.target if config.target is None else config.target
        return Target(value=value, lower_is_better=self.lower_is_better or config.lower_is_better)

    def max_examples(self, config: TrainConfig) -> int:
        """Return the number of examples after which training stops without reaching the target."""
        return config.max_examples or MAX_EPOCHS * len(self.train)

    def eval_interval(self, config: TrainConfig) -> int:
        """Return the number of examples between evaluations; by default a quarter of an epoch."""
        return config.eval_every or max(1, len(self.train) // 4)


def stratified_split(labels: NDArray[np.int64], fractions: Sequence[float], seed: int = 0) -> list[NDArray[np.int64]]:
    """Deal indices into disjoint parts: one per fraction, preceded by a first part that takes the rest.

    The split is stratified: every part has the classes in proportion as far as whole examples allow. It is always the
    same for the same labels and seed.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    bounds = np.cumsum([1 - sum(fractions), *fractions])
    parts: list[list[NDArray[np.int64]]] = [[] for _ in bounds]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(bounds[:-1] * len(members)).astype(int)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def select_examples(pictures: Tensor, labels: Tensor, indices: NDArray[np.int64]) -> Split:
    """Return the examples at `indices` as an in-memory split."""
    selected = torch.from_numpy(indices)
    return Split(pictures[selected], labels[selected])
