"""Handwritten digits, 8x8, embedded: the 1,797 pictures that scikit-learn carries."""

import torch

from equipoise.augment import Augment
from equipoise.trial import Trial
from equipoise.workloads.models import model
from equipoise.workloads.workload import Workload, dealt, split


def digits(trial: Trial) -> Workload:
    """Ten classes; LeNet passes 0.96 on validation within ten passes or so. Pictures are enlarged to 16x16."""
    from sklearn.datasets import load_digits  # a second to import: not for those who train on other data

    size = trial.size or 16  # twice their own: LeNet takes no less than 12
    raw = load_digits()
    small = torch.from_numpy(raw.images).float()[:, None] * (255 / 16)
    pictures = torch.nn.functional.interpolate(small, size, mode="bilinear").round().to(torch.uint8)
    labels = torch.from_numpy(raw.target).long()
    train, validation, reference, test = dealt(raw.target, (0.15, 0.1, 0.15))
    return Workload(
        name="digits",
        classes=[str(digit) for digit in range(10)],
        train=split(pictures, labels, train),
        validation=split(pictures, labels, validation),
        reference=split(pictures, labels, reference),
        test=split(pictures, labels, test),
        model=model(trial.model or "lenet", classes=10, channels=1, size=size),
        target=0.96,
        mean=(0.3,),
        std=(0.35,),
        augment=Augment(shift=1),
    )
