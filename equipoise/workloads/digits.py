"""Handwritten digits, 8x8, embedded: the 1,797 pictures that scikit-learn carries."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.config import TrainConfig
from equipoise.images.augment import Augment
from equipoise.workloads.base import Workload, select_examples, stratified_split
from equipoise.workloads.models import model_factory


def digits(config: TrainConfig) -> Workload:
    """Ten classes; LeNet passes 0.96 on validation within ten passes or so. Pictures are enlarged to 16x16."""
    size = config.image_size or 16  # twice their own: LeNet takes no less than 12
    images, classes = read_sklearn_digits()
    small = torch.from_numpy(images).float()[:, None] * (255 / 16)
    pictures = torch.nn.functional.interpolate(small, size, mode="bilinear").round().to(torch.uint8)
    labels = torch.from_numpy(classes).long()
    train, validation, reference, test = stratified_split(classes, (0.15, 0.1, 0.15))
    return Workload(
        name="digits",
        classes=[str(digit) for digit in range(10)],
        train=select_examples(pictures, labels, train),
        validation=select_examples(pictures, labels, validation),
        reference=select_examples(pictures, labels, reference),
        test=select_examples(pictures, labels, test),
        model=model_factory(config.model or "lenet", num_classes=10, in_channels=1, image_size=size),
        target=0.96,
        mean=(0.3,),
        std=(0.35,),
        augment=Augment(shift=1),
    )


def read_sklearn_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pictures of 0 to 16 and their classes, from scikit-learn's file; its import would cost every worker a second."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ValueError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    table = np.loadtxt(Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
