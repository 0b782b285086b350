import numpy as np
import pytest

from equipoise.runs.noise_scale import estimate_noise_terms, noise_scale_from_terms


def test_terms_of_hand_made_norms():
    # |G|^2 = 4 and tr(Sigma) = 80: at 8 examples 4 + 10, at 16 examples 4 + 5
    assert estimate_noise_terms(local_norm=14, total_norm=9, local_batch=8, total_batch=16) == pytest.approx((4, 80))
    assert noise_scale_from_terms(4, 80) == 20


def test_terms_are_unbiased_for_equal_and_unequal_shares():
    rng = np.random.default_rng(0)
    gradient, spread = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    for shares in ([8, 8, 8], [4, 8, 16]):
        examples = gradient + spread * rng.standard_normal((20_000, sum(shares), 3))
        parts = np.split(examples, np.cumsum(shares)[:-1], axis=1)
        local = np.mean([(part.mean(1) ** 2).sum(1).mean() for part in parts])
        total = (examples.mean(1) ** 2).sum(1).mean()
        small = len(shares) / sum(1 / share for share in shares)
        terms = estimate_noise_terms(local, total, small, sum(shares))
        assert terms.signal == pytest.approx((gradient**2).sum(), rel=0.02)
        assert terms.variance == pytest.approx((spread**2).sum(), rel=0.02)


def test_without_a_gradient_above_the_noise_there_is_no_scale():
    assert noise_scale_from_terms(-0.1, 3) is None
    assert noise_scale_from_terms(0, 3) is None


@pytest.mark.parametrize(("small", "big"), [(8, 8), (16, 8), (0, 8)])
def test_one_batch_size_cannot_tell_the_terms_apart(small, big):
    with pytest.raises(ValueError, match="two batch sizes"):
        estimate_noise_terms(1, 1, small, big)
