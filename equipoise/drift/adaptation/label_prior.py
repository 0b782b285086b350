"""Adapt a model to label shift: only the class shares that it expects change, in the bias of its last layer."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.label_shift import estimate_label_shift
from equipoise.errors import EquipoiseError

MIN_LABEL_SHIFT_REQUESTS = 300  # requests from which the new class shares are known well enough
MIN_CLASS_WEIGHT = 0.05  # lowest ratio of new to old share: a class that seems to be gone may come back


def label_shift_weights(profile: ReferenceProfile, predicted_counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return the ratio of each class's new share to that in the reference, from counts of predicted classes.

    Refuses counts of too few requests, and a model that confuses classes too much to tell their shares.
    """
    if predicted_counts.sum() < MIN_LABEL_SHIFT_REQUESTS:
        raise EquipoiseError(
            "adaptation-impossible",
            f"cannot adapt to label shift: only {int(predicted_counts.sum())} requests since the classes changed",
            f"wait for {MIN_LABEL_SHIFT_REQUESTS}",
        )
    shift = estimate_label_shift(profile.labelled.confusion, np.maximum(profile.labelled.prior, 1e-6), predicted_counts)
    if not shift.is_identifiable:
        raise EquipoiseError(
            "adaptation-impossible",
            "cannot estimate the new class shares: the model confuses the classes too much",
            "label some requests",
        )
    return np.maximum(shift.weights, MIN_CLASS_WEIGHT)


def shift_class_prior(head: nn.Module, temperature: float, weights: NDArray[np.float64]) -> None:
    """Add the logarithms of class weights to the bias of a model's last layer, in place.

    The posteriors, the softmax of logits / temperature, become those of the new class shares.
    """
    if not isinstance(head.bias, torch.Tensor):
        raise EquipoiseError(
            "adaptation-impossible",
            "cannot adapt to label shift: the model's last layer has no bias to hold the class shares",
            "train it again",
        )
    with torch.no_grad():
        head.bias += torch.from_numpy(temperature * np.log(weights)).to(head.bias)
