"""Log odds and energy of a model's scores, against their definitions."""

import numpy as np
import pytest
from scipy.special import logit, logsumexp, softmax

from equipoise.drift.features.confidence import confidence_statistics


def test_log_odds_of_the_best_class_and_energy_follow_their_definitions():
    logits = np.random.default_rng(0).normal(0, 3, (50, 4))
    log_odds, energy = confidence_statistics(logits, 2.0).T
    np.testing.assert_allclose(log_odds, logit(softmax(logits / 2, 1).max(1)), rtol=1e-4)
    np.testing.assert_allclose(energy, logsumexp(logits / 2, 1), rtol=1e-5)


@pytest.mark.parametrize(("difference", "log_odds"), [(29.0, 29.0), (30.5, 30.0), (1e4, 30.0)])
def test_log_odds_are_limited_to_30(difference, log_odds):
    assert confidence_statistics(np.array([[difference, 0.0]]), 1.0)[0, 0] == pytest.approx(log_odds, rel=1e-3)
