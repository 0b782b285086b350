"""CIFAR-10: 60,000 photographs in ten classes, 32x32 (Krizhevsky, 2009)."""

from pathlib import Path
from typing import Any

import torch

from equipoise.config import Trial
from equipoise.images.augment import Augment
from equipoise.workloads.base import Split, Workload, dealt, split
from equipoise.workloads.download import grown, loaded
from equipoise.workloads.models import model

FILES = ["cifar-10-python.tar.gz"]


def cifar10(trial: Trial) -> Workload:
    """Ten classes; the published test set is the test split, the rest is dealt from the training set."""
    size = trial.size or 32
    known, unseen = loaded("CIFAR10", Path(trial.data), FILES)
    (pictures, labels), (test_pictures, test_labels) = tensors(known, size), tensors(unseen, size)
    train, validation, reference = dealt(labels.numpy(), (0.1, 0.1))
    return Workload(
        name="cifar10",
        classes=known.classes,
        train=split(pictures, labels, train),
        validation=split(pictures, labels, validation),
        reference=split(pictures, labels, reference),
        test=Split(test_pictures, test_labels),
        model=model(trial.model or "resnet18", classes=10, channels=3, size=size),
        target=0.75,
        mean=(0.491, 0.482, 0.447),
        std=(0.247, 0.243, 0.262),
        augment=Augment(shift=4, flip=True),
    )


def tensors(part: Any, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures with the channels first, and labels."""
    return grown(torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(), size), torch.tensor(part.targets)
