"""Workload of real photographs without a download: from which of two photographs, and which band of it, is a patch?"""

import numpy as np
import torch

from equipoise.config import TrainConfig
from equipoise.workloads import ImageWorkload
from equipoise.workloads.base import select_split, stratified_split
from equipoise.workloads.models import model_factory

PATCH_PIXELS, BANDS = 16, 3


def load_photo_patches(trial: TrainConfig) -> ImageWorkload:
    """Load 2,106 colour patches, in six classes, of the two photographs that come with scikit-learn."""
    from sklearn.datasets import load_sample_images

    patches, labels = [], []
    for index, photograph in enumerate(load_sample_images().images):
        rows, columns = (side // PATCH_PIXELS for side in photograph.shape[:2])
        for row in range(rows):
            for column in range(columns):
                top, left = row * PATCH_PIXELS, column * PATCH_PIXELS
                patches.append(photograph[top : top + PATCH_PIXELS, left : left + PATCH_PIXELS])
                labels.append(index * BANDS + row * BANDS // rows)
    images = torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()
    classes, targets = np.array(labels), torch.tensor(labels)
    train, validation, reference, test = stratified_split(classes, (0.15, 0.1, 0.15))
    return ImageWorkload(
        name="patches",
        classes=[f"{name}, {band}" for name in ("china", "flower") for band in ("top", "middle", "bottom")],
        train=select_split(images, targets, train),
        validation=select_split(images, targets, validation),
        reference=select_split(images, targets, reference),
        test=select_split(images, targets, test),
        model=model_factory(trial.model or "lenet", num_classes=2 * BANDS, in_channels=3, image_size=PATCH_PIXELS),
        target=0.8,
        mean=(0.4, 0.4, 0.4),
        std=(0.25, 0.25, 0.25),
    )
