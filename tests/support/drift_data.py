"""Toy data for tests of drift: images of discs whose class is their colour, a model for them, and its profile."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_reference_profile
from equipoise.drift.reference.profile import ReferenceProfile

CLASSES = 4
COLOURS = torch.tensor([[200, 60, 50], [60, 180, 70], [60, 80, 200], [190, 180, 60]], dtype=torch.float32)


def render_shapes(count: int, seed: int, labels: NDArray[np.int64] | None = None) -> tuple[Tensor, NDArray[np.int64]]:
    """Render labelled uint8 images (count, 3, 32, 32): a coloured disc on noisy grey, in slightly varying light."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count) if labels is None else labels
    positions = torch.linspace(-1, 1, 32)
    centre = torch.from_numpy(rng.uniform(-0.3, 0.3, (count, 2))).float()
    radius = torch.from_numpy(rng.uniform(0.45, 0.7, count)).float()
    squared_distance = (positions[None, :, None] - centre[:, :1, None]) ** 2 + (
        positions[None, None] - centre[:, 1:, None]
    ) ** 2
    coverage = ((radius[:, None, None] - squared_distance.sqrt()) * 8).clamp(0, 1)[:, None]
    background = torch.from_numpy(rng.uniform(70, 110, count)).float().view(-1, 1, 1, 1)
    values = background * (1 - coverage) + COLOURS[torch.from_numpy(labels)][:, :, None, None] * coverage
    gain = torch.from_numpy(rng.normal(1, 0.05, (count, 3))).float()[:, :, None, None]
    noise = torch.from_numpy(rng.normal(0, 4, values.shape)).float()
    return (values * gain + noise).round().clamp(0, 255).to(torch.uint8), labels


def score_shapes(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits, by the distance of the centre's colour from each class's, and the features they are based on."""
    centre = batch[:, :, 10:22, 10:22].float().mean((2, 3))
    features = torch.cat([centre, batch.float().mean((2, 3)), batch.float().std((2, 3))], 1) / 40
    return -(centre[:, None] - COLOURS).square().sum(2).sqrt() / 8, features


@cache
def shapes_profile(count: int = 600) -> ReferenceProfile:
    """Build the drift profile of `count` reference images, with 400 held-out images."""
    reference, holdout = label_shapes(count, seed=1), label_shapes(400, seed=2)
    return build_reference_profile(score_shapes, reference, 1.0, holdout, corrupted_image_count=120)


def label_shapes(count: int, seed: int) -> LabelledOutputs:
    """Render labelled images and return them with the model's outputs."""
    images, labels = render_shapes(count, seed)
    logits, features = (output.numpy() for output in score_shapes(images))
    return LabelledOutputs(images, logits, features, labels)


def extract_shape_features(images: Tensor) -> ImageFeatures:
    """Extract the features of images with the model and the baseline of the profile."""
    logits, features = (output.numpy() for output in score_shapes(images))
    return shapes_profile().baseline.extract_features(images.numpy(), logits, features)
