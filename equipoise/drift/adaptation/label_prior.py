"""The remedy for classes that come in other shares: the model tells each as ever, only what it expects changes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from equipoise.drift.reference.profile import Known
from equipoise.drift.stats import label_shift as shift

FEWEST = 300  # requests from which new shares are known well enough
LEAST = 0.05  # of its share, that a class is still expected with when it seems to be gone: it may come back


def weights(known: Known, called: NDArray[Any]) -> NDArray[np.float64]:
    """How much oftener each class comes than in the reference, by how many requests were called each."""
    if called.sum() < FEWEST:
        raise ValueError(f"{int(called.sum())} requests came since classes changed: wait for {FEWEST}")
    solved = shift.by_confusion(known.labelled.confusion, np.maximum(known.labelled.prior, 1e-6), called)
    if not solved.trusted:
        raise ValueError("the model mixes up classes too much to tell their shares: label some requests")
    return np.maximum(solved.weights, LEAST)


def expected(head: nn.Module, temperature: float, weights: NDArray[np.float64]) -> None:
    """Let a model, by its last layer, expect classes so much oftener: posteriors become those of the new shares."""
    if not isinstance(head.bias, torch.Tensor):
        raise ValueError("the model's last layer has no bias to carry what it expects: train it again")
    with torch.no_grad():
        head.bias += torch.from_numpy(temperature * np.log(weights)).to(head.bias)
