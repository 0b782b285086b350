"""How much likelier each reference example is in a window: weights by which the one stands for the other."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from equipoise.drift.stats.two_sample_tests import checked

Array = NDArray[Any]
Labels = NDArray[np.integer[Any]]

FOLDS = 5
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1.0)  # of the domain classifier, the best of which is taken
STEEPEST = 30.0  # log odds: beyond, weights would be infinite
MOVED = 1 / 5  # of the reference


@dataclass(frozen=True, eq=False)
class Weights:
    """How many times as likely each reference example is in the window."""

    weights: NDArray[np.float64]

    @property
    def effective(self) -> float:
        """Examples without weights that would be worth as much (Kish)."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def moved(self) -> bool:
        """Whether the window lies where the reference hardly is: collect examples, do not weight these."""
        return self.effective < MOVED * len(self.weights)


def density(reference_features: Array, window_features: Array, seed: int = 0) -> Weights:
    """How much likelier each reference example is in the window, by a classifier that tells the two apart.

    Weights are (n / m) s / (1 - s), where s comes from folds that have not seen the example; 1 on average.
    """
    checked(reference_features, window_features)
    count, other = len(reference_features), len(window_features)
    if min(count, other) < FOLDS:
        raise ValueError(f"{count} reference and {other} window examples; give at least {FOLDS} of each")
    features = np.concatenate([reference_features, window_features]).astype(np.float64)
    domain = np.repeat([0, 1], [count, other])
    odds = _odds(StandardScaler().fit_transform(features), domain, seed)
    surprise = np.logaddexp(0, np.where(domain == 1, -odds, odds)).mean(1)
    best = odds[int(surprise.argmin()), :count]
    return Weights(np.exp(np.clip(best, -STEEPEST, STEEPEST)) * count / other)


def _odds(features: Array, domain: Labels, seed: int) -> NDArray[np.float64]:
    """(strengths, examples): log odds of being the window's, each by a classifier that has not seen the example."""
    odds = np.zeros((len(STRENGTHS), len(domain)))
    for seen, unseen in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(features, domain):
        for row, strength in enumerate(STRENGTHS):
            classifier = LogisticRegression(C=strength, max_iter=1000).fit(features[seen], domain[seen])
            odds[row, unseen] = classifier.decision_function(features[unseen])
    return odds
