"""Toy images under several lights, a model that is right under each of them, and its profile of two conditions."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.profiling.build_profile import KnownCondition, LabelledOutputs, build_reference_profile
from equipoise.drift.reference.profile import ReferenceProfile
from tests.support.drift_data import COLOURS, render_shapes

GAINS = {"plain": (1.0, 1.0, 1.0), "warm": (1.25, 1.0, 0.62), "dark": (0.6, 0.6, 0.6)}
"""factors of red, green and blue in each condition"""


def apply_gains(images: Tensor, gains: tuple[float, float, float]) -> Tensor:
    """Multiply the pixel values of each colour channel by a factor."""
    return (images.float() * torch.tensor(gains).view(3, 1, 1)).round().clamp(0, 255).to(torch.uint8)


def render_condition(
    name: str, count: int, seed: int, labels: NDArray[np.int64] | None = None
) -> tuple[Tensor, NDArray[np.int64]]:
    """Render labelled images in one condition."""
    images, labels = render_shapes(count, seed, labels)
    return apply_gains(images, GAINS[name]), labels


def render_light(name: str, count: int, seed: int) -> Tensor:
    """Render images in one condition."""
    return render_condition(name, count, seed)[0]


def render_mixed_lights(count: int, seed: int, run_length: float = 20.0) -> Tensor:
    """Render images that change between plain and warm light in runs."""
    rng = np.random.default_rng(seed)
    starts = rng.random(count) < 1 / run_length
    start_of_run = np.maximum.accumulate(np.where(starts, np.arange(count), 0))
    is_warm = torch.from_numpy(rng.random(count)[start_of_run] < 0.5)[:, None, None, None]
    return torch.where(is_warm, render_light("warm", count, seed + 1), render_light("plain", count, seed + 2))


def blur(images: Tensor) -> Tensor:
    """Average each pixel with its neighbours."""
    return avg_pool2d(images.float(), 3, 1, 1, count_include_pad=False).round().to(torch.uint8)


def score_in_any_light(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits, by the distance of the centre's colour from each class's in the best light, and features."""
    centre = batch[:, :, 10:22, 10:22].float().mean((2, 3))
    features = torch.cat([centre, batch.float().mean((2, 3)), batch.float().std((2, 3))], 1) / 40
    palettes = torch.stack([COLOURS * torch.tensor(gains) for gains in GAINS.values()])
    distances = (centre[:, None, None] - palettes).square().sum(3).sqrt()
    return -distances.min(1).values / 8, features


def predict_in_any_light(images: Tensor, labels: NDArray[np.int64]) -> LabelledOutputs:
    """Return images with the model's outputs."""
    logits, features = (output.numpy() for output in score_in_any_light(images))
    return LabelledOutputs(images, logits, features, labels)


def label_condition(name: str, count: int, seed: int) -> LabelledOutputs:
    """Render images in one condition, with the model's outputs."""
    return predict_in_any_light(*render_condition(name, count, seed))


@cache
def two_lights_profile() -> ReferenceProfile:
    """Build the profile of 600 images in plain light and 400 in warm light, with 400 held-out images in plain light."""
    reference, holdout = label_condition("plain", 600, 1), label_condition("plain", 400, 2)
    warm = KnownCondition("warm", label_condition("warm", 400, 3))
    return build_reference_profile(score_in_any_light, reference, 1.0, holdout, 60, [warm])


def extract_features_in_any_light(images: Tensor, profile: ReferenceProfile | None = None) -> ImageFeatures:
    """Extract the features of images with the model and the baseline of a profile, that of two lights by default."""
    logits, features = (output.numpy() for output in score_in_any_light(images))
    return (profile or two_lights_profile()).baseline.extract_features(images.numpy(), logits, features)
