"""A reference for tests of drift: pictures of shapes whose class is their colour, and a model that tells it."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.baseline import ImageFeatures
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_reference_profile
from equipoise.drift.reference.profile import ReferenceProfile

CLASSES = 4
COLOURS = torch.tensor([[200, 60, 50], [60, 180, 70], [60, 80, 200], [190, 180, 60]], dtype=torch.float32)


def render_shapes(count: int, seed: int, labels: NDArray[np.int64] | None = None) -> tuple[Tensor, NDArray[np.int64]]:
    """uint8 (count, 3, 32, 32): a coloured disc somewhere on grainy grey, in light that varies a little."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count) if labels is None else labels
    across = torch.linspace(-1, 1, 32)
    middle = torch.from_numpy(rng.uniform(-0.3, 0.3, (count, 2))).float()
    size = torch.from_numpy(rng.uniform(0.45, 0.7, count)).float()
    away = (across[None, :, None] - middle[:, :1, None]) ** 2 + (across[None, None] - middle[:, 1:, None]) ** 2
    cover = ((size[:, None, None] - away.sqrt()) * 8).clamp(0, 1)[:, None]
    ground = torch.from_numpy(rng.uniform(70, 110, count)).float().view(-1, 1, 1, 1)
    values = ground * (1 - cover) + COLOURS[torch.from_numpy(labels)][:, :, None, None] * cover
    gain = torch.from_numpy(rng.normal(1, 0.05, (count, 3))).float()[:, :, None, None]
    grain = torch.from_numpy(rng.normal(0, 4, values.shape)).float()
    return (values * gain + grain).round().clamp(0, 255).to(torch.uint8), labels


def score_shapes(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Scores by how near the middle's colour is to each class's, and what that was found from."""
    middle = batch[:, :, 10:22, 10:22].float().mean((2, 3))
    features = torch.cat([middle, batch.float().mean((2, 3)), batch.float().std((2, 3))], 1) / 40
    return -(middle[:, None] - COLOURS).square().sum(2).sqrt() / 8, features


@cache
def shapes_profile(count: int = 600) -> ReferenceProfile:
    """What a reference of so many pictures tells."""
    return build_reference_profile(score_shapes, label_shapes(count, seed=1), 1.0, label_shapes(400, seed=2))


def label_shapes(count: int, seed: int) -> LabelledOutputs:
    """Pictures, and what the model says of them."""
    some, labels = render_shapes(count, seed)
    logits, features = (one.numpy() for one in score_shapes(some))
    return LabelledOutputs(some, logits, features, labels)


def extract_shape_features(some: Tensor) -> ImageFeatures:
    """What there is to say of pictures."""
    logits, features = (one.numpy() for one in score_shapes(some))
    return shapes_profile().baseline.extract_features(some.numpy(), logits, features)
