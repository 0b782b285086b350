import numpy as np
import pytest
import torch
from torch import nn

from equipoise.drift.adaptation import label_prior as priors
from equipoise.drift.adaptation.label_prior import MIN_CLASS_WEIGHT, label_shift_weights, shift_class_prior
from equipoise.drift.stats.label_shift import adapt_posteriors
from tests.support.drift_data import shapes_profile


def called(shares):
    """What 2,000 requests are called, by the confusion of the reference."""
    return np.round(2000 * shapes_profile().labelled.confusion @ np.asarray(shares))


def test_new_shares_are_found_by_what_requests_were_called():
    new = np.array([0.5, 0.3, 0.15, 0.05])
    found = label_shift_weights(shapes_profile(), called(new))
    np.testing.assert_allclose(found * shapes_profile().labelled.prior, new, atol=0.01)


def test_a_class_that_seems_to_be_gone_is_still_expected_a_little():
    assert label_shift_weights(shapes_profile(), called([0, 0.4, 0.3, 0.3]))[0] == MIN_CLASS_WEIGHT


def test_few_requests_tell_no_shares():
    with pytest.raises(ValueError, match="wait for 300"):
        label_shift_weights(shapes_profile(), np.array([100, 50, 50, 50]))


def test_a_model_that_expects_new_shares_has_the_posteriors_of_these():
    torch.manual_seed(0)
    head, features = nn.Linear(6, 4).double(), torch.randn(50, 6).double()
    more, heat = np.array([3.0, 1.0, 0.5, 0.05]), 1.7
    before = head(features).detach().numpy()
    shift_class_prior(head, heat, more)
    found = torch.softmax(head(features) / heat, 1).detach().numpy()
    np.testing.assert_allclose(found, adapt_posteriors(before, heat, more), rtol=1e-9)


def test_a_layer_without_bias_cannot_carry_what_is_expected():
    with pytest.raises(ValueError, match="no bias"):
        priors.shift_class_prior(nn.Linear(6, 4, bias=False), 1.0, np.ones(4))
