"""The one seam for what is learned: data in four splits, a model, a loss, a metric, a target."""

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

MAX_EPOCHS = 50  # over the training split, until a trial gives up


class ImageSequence(Protocol):
    """Pictures that are read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Tensor:
        """One picture: uint8 (channels, height, width)."""


@dataclass(frozen=True)
class Split:
    """Examples that serve one purpose."""

    pictures: Tensor | ImageSequence
    """uint8 (examples, channels, height, width), or read one at a time"""
    labels: Tensor
    """int64 (examples,)"""

    def __len__(self) -> int:
        return len(self.labels)


def top1_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """1 for each example whose highest score is its label's, else 0: the mean is the accuracy."""
    return (logits.argmax(1) == labels).double()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is learned. Pictures reach the model as (uint8 / 255 - mean) / std, channel by channel."""

    name: str
    classes: Sequence[str]
    train: Split
    validation: Split
    """decides when to stop"""
    reference: Split
    """kept from training, to know later what normal looks like"""
    test: Split
    """reported once"""
    model: Callable[[], nn.Module]
    """a new model, its weights drawn from torch's generator"""
    target: float
    """of the metric on the validation split"""
    mean: Sequence[float]
    std: Sequence[float]
    augment: Augment | None = None
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    """(logits, labels) to the mean loss of a batch"""
    metric: Callable[[Tensor, Tensor], Tensor] = top1_correct
    """(logits, labels) to a figure an example, whose mean is the metric; higher is better"""
    false_alarm_split: Split | None = None
    """pictures like those of the reference, to count false alarms of drift on; the validation split if not given"""

    def max_examples(self, config: TrainConfig) -> int:
        """Examples after which `trial` gives up."""
        return config.max_examples or MAX_EPOCHS * len(self.train)

    def eval_interval(self, config: TrainConfig) -> int:
        """Examples between evaluations; a quarter of a pass if not asked for."""
        return config.eval_every or max(1, len(self.train) // 4)


def stratified_split(labels: NDArray[np.int64], fractions: Sequence[float], seed: int = 0) -> list[NDArray[np.int64]]:
    """Indices dealt into disjoint parts: the first is what `shares`, for the others, leave over.

    Class by class, so that every part has the classes in proportion as far as whole
    pictures allow; always the same for the same labels.
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
    """The examples of `indices`, in memory."""
    chosen = torch.from_numpy(indices)
    return Split(pictures[chosen], labels[chosen])
