"""The remedy for classes that come in other shares: the model tells each as ever, only what it expects changes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.label_shift import estimate_label_shift

MIN_LABEL_SHIFT_REQUESTS = 300  # requests from which new shares are known well enough
MIN_CLASS_WEIGHT = 0.05  # of its share, that a class is still expected with when it seems to be gone: it may come back


def label_shift_weights(profile: ReferenceProfile, predicted_counts: NDArray[Any]) -> NDArray[np.float64]:
    """How much oftener each class comes than in the reference, by how many requests were called each."""
    if predicted_counts.sum() < MIN_LABEL_SHIFT_REQUESTS:
        raise ValueError(
            f"{int(predicted_counts.sum())} requests came since classes changed: wait for {MIN_LABEL_SHIFT_REQUESTS}"
        )
    solved = estimate_label_shift(
        profile.labelled.confusion, np.maximum(profile.labelled.prior, 1e-6), predicted_counts
    )
    if not solved.is_identifiable:
        raise ValueError("the model mixes up classes too much to tell their shares: label some requests")
    return np.maximum(solved.weights, MIN_CLASS_WEIGHT)


def shift_class_prior(head: nn.Module, temperature: float, weights: NDArray[np.float64]) -> None:
    """Let a model, by its last layer, expect classes so much oftener: posteriors become those of the new shares."""
    if not isinstance(head.bias, torch.Tensor):
        raise ValueError("the model's last layer has no bias to carry what it expects: train it again")
    with torch.no_grad():
        head.bias += torch.from_numpy(temperature * np.log(weights)).to(head.bias)
