"""Density ratio: importance weights that make the reference examples represent a window."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.stats.two_sample_tests import validate_samples
from equipoise.type_aliases import AnyArray, IntArray

FOLD_COUNT = 5
INVERSE_REGULARIZATIONS = (1e-5, 1e-4, 1e-3, 1e-2, 1.0)  # of the domain classifier; the best is taken
MAX_ABS_LOG_ODDS = 30.0  # beyond, weights would be infinite
MIN_EFFECTIVE_SHARE = 1 / 5  # of the reference; below, the window lies outside the reference


@dataclass(frozen=True, eq=False)
class ImportanceWeights:
    """Importance weights of the reference examples for a window."""

    weights: NDArray[np.float64]
    """(reference examples,) density in the window over density in the reference"""

    @property
    def effective_sample_size(self) -> float:
        """Number of unweighted examples that would be worth as much (Kish)."""
        return float(self.weights.sum() ** 2 / (self.weights**2).sum())

    @property
    def is_outside_reference(self) -> bool:
        """Return whether too few reference examples resemble the window: collect new ones, do not weight these."""
        return self.effective_sample_size < MIN_EFFECTIVE_SHARE * len(self.weights)


def estimate_density_ratio(reference_features: AnyArray, window_features: AnyArray, seed: int = 0) -> ImportanceWeights:
    """Estimate importance weights by a classifier that tells the reference from the window.

    Weights are (n / m) s / (1 - s), where s is predicted by folds that have not seen the example; 1 on average.
    """
    validate_samples(reference_features, window_features)
    count, other = len(reference_features), len(window_features)
    if min(count, other) < FOLD_COUNT:
        raise ValueError(
            f"cannot weight {count} reference examples by {other} window examples; give at least {FOLD_COUNT} of each"
        )
    features = np.concatenate([reference_features, window_features]).astype(np.float64)
    domain = np.repeat([0, 1], [count, other])
    odds = _out_of_fold_log_odds(features, domain, seed)
    log_loss = np.logaddexp(0, np.where(domain == 1, -odds, odds)).mean(1)
    best = odds[int(log_loss.argmin()), :count]
    return ImportanceWeights(np.exp(np.clip(best, -MAX_ABS_LOG_ODDS, MAX_ABS_LOG_ODDS)) * count / other)


def _out_of_fold_log_odds(features: AnyArray, domain: IntArray, seed: int) -> NDArray[np.float64]:
    """Return (regularizations, examples): log odds of the window, from classifiers that have not seen the example."""
    from sklearn.linear_model import LogisticRegression  # services, which weight nothing, start sooner without these
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    features = StandardScaler().fit_transform(features)
    odds = np.zeros((len(INVERSE_REGULARIZATIONS), len(domain)))
    for seen, unseen in StratifiedKFold(FOLD_COUNT, shuffle=True, random_state=seed).split(features, domain):
        for row, strength in enumerate(INVERSE_REGULARIZATIONS):
            classifier = LogisticRegression(C=strength, max_iter=1000).fit(features[seen], domain[seen])
            odds[row, unseen] = classifier.decision_function(features[unseen])
    return odds
