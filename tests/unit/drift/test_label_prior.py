import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from equipoise.drift.adaptation.label_prior import label_shift_weights, shift_class_prior
from tests.support.drift_data import shapes_profile
from tests.support.errors import raises_code


def count_predictions(shares):
    """Return the predicted-class counts of 2,000 requests with these class shares, by the reference's confusion."""
    return np.round(2000 * shapes_profile().labelled.confusion @ np.asarray(shares))


def test_new_class_shares_are_estimated_from_predicted_classes():
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    weights = label_shift_weights(shapes_profile(), count_predictions(shares))
    np.testing.assert_allclose(weights * shapes_profile().labelled.prior, shares, atol=0.01)


def test_class_that_seems_gone_keeps_a_small_weight():
    assert label_shift_weights(shapes_profile(), count_predictions([0, 0.4, 0.3, 0.3]))[0] == 0.05


def test_too_few_requests_are_refused():
    with raises_code("adaptation-impossible", 299, 300):
        label_shift_weights(shapes_profile(), np.array([99, 100, 50, 50]))
    assert (label_shift_weights(shapes_profile(), np.array([100, 100, 50, 50])) > 0).all()


def test_shifted_prior_gives_the_posteriors_of_the_new_shares():
    torch.manual_seed(0)
    head, features = nn.Linear(6, 4).double(), torch.randn(50, 6).double()
    weights, temperature = np.array([3.0, 1.0, 0.5, 0.05]), 1.7
    logits = head(features).detach().numpy()
    shift_class_prior(head, temperature, weights)
    posteriors = torch.softmax(head(features) / temperature, 1).detach().numpy()
    expected = softmax(logits / temperature + np.log(weights), 1)  # by Bayes' rule
    np.testing.assert_allclose(posteriors, expected, rtol=1e-9)


def test_layer_without_bias_is_refused():
    with raises_code("adaptation-impossible", "bias"):
        shift_class_prior(nn.Linear(6, 4, bias=False), 1.0, np.ones(4))
