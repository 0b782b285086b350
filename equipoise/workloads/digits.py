"""Workload digits: the 1,797 handwritten digits, 8x8, that come with scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.images.augment import Augment
from equipoise.workloads.base import select_split, stratified_split
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.models import model_factory


def digits(config: TrainConfig) -> ImageWorkload:
    """Build the digits workload, enlarged to 16x16; LeNet reaches 0.96 on validation within about ten epochs."""
    size = config.image_size or 16  # twice the original 8: LeNet needs at least 12
    images, classes = read_sklearn_digits()
    small = torch.from_numpy(images).float()[:, None] * (255 / 16)
    pictures = torch.nn.functional.interpolate(small, size, mode="bilinear").round().to(torch.uint8)
    labels = torch.from_numpy(classes).long()
    train, validation, reference, test = stratified_split(classes, (0.15, 0.1, 0.15))
    return ImageWorkload(
        name="digits",
        classes=[str(digit) for digit in range(10)],
        train=select_split(pictures, labels, train),
        validation=select_split(pictures, labels, validation),
        reference=select_split(pictures, labels, reference),
        test=select_split(pictures, labels, test),
        model=model_factory(config.model or "lenet", num_classes=10, in_channels=1, image_size=size),
        target=0.96,
        mean=(0.3,),
        std=(0.35,),
        augment=Augment(shift=1),
    )


def read_sklearn_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read images with values from 0 to 16 and their classes from scikit-learn's file.

    The file is read without importing scikit-learn, which would cost every worker a second.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise EquipoiseError(
            "package-missing", "cannot load the digits: scikit-learn is not installed", "run pip install scikit-learn"
        )
    table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
