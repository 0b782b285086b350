"""Real photographs to learn from without a download: which of two pictures, and which band of it, a patch is from."""

import numpy as np
import torch

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.base import select_examples, stratified_split
from equipoise.workloads.models import model_factory

SIZE, BANDS = 16, 3


def workload(trial: TrainConfig) -> Workload:
    """2,106 colour patches of the two photographs that scikit-learn carries, in six classes."""
    from sklearn.datasets import load_sample_images

    patches, labels = [], []
    for number, photograph in enumerate(load_sample_images().images):
        rows, columns = (side // SIZE for side in photograph.shape[:2])
        for row in range(rows):
            for column in range(columns):
                top, left = row * SIZE, column * SIZE
                patches.append(photograph[top : top + SIZE, left : left + SIZE])
                labels.append(number * BANDS + row * BANDS // rows)
    pictures = torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()
    classes, targets = np.array(labels), torch.tensor(labels)
    train, validation, reference, test = stratified_split(classes, (0.15, 0.1, 0.15))
    return Workload(
        name="patches",
        classes=[f"{name}, {band}" for name in ("china", "flower") for band in ("top", "middle", "bottom")],
        train=select_examples(pictures, targets, train),
        validation=select_examples(pictures, targets, validation),
        reference=select_examples(pictures, targets, reference),
        test=select_examples(pictures, targets, test),
        model=model_factory(trial.model or "lenet", num_classes=2 * BANDS, in_channels=3, image_size=SIZE),
        target=0.8,
        mean=(0.4, 0.4, 0.4),
        std=(0.25, 0.25, 0.25),
    )
