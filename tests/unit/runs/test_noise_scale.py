import numpy as np
import pytest

from equipoise.config import TrainConfig
from equipoise.runs.noise_scale import estimate_noise_terms, explain_missing_noise_scale, noise_scale_from_terms
from tests.support.errors import raises_code


def test_terms_match_a_calculation_by_hand():
    # |G|^2 = 4 and tr(Sigma) = 80: at 8 examples 4 + 10, at 16 examples 4 + 5
    assert estimate_noise_terms(local_norm=14, total_norm=9, local_batch=8, total_batch=16) == pytest.approx((4, 80))
    assert noise_scale_from_terms(4, 80) == 20
    assert noise_scale_from_terms(0.5, 0.25) == 0.5


def test_terms_are_unbiased_for_equal_and_unequal_batches():
    rng = np.random.default_rng(0)
    gradient, deviation = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    for batch_sizes in ([8, 8, 8], [4, 8, 16]):
        examples = gradient + deviation * rng.standard_normal((20_000, sum(batch_sizes), 3))
        worker_examples = np.split(examples, np.cumsum(batch_sizes)[:-1], axis=1)
        local_norm = np.mean([(batch.mean(1) ** 2).sum(1).mean() for batch in worker_examples])
        total_norm = (examples.mean(1) ** 2).sum(1).mean()
        harmonic_mean_size = len(batch_sizes) / sum(1 / batch_size for batch_size in batch_sizes)
        terms = estimate_noise_terms(local_norm, total_norm, harmonic_mean_size, sum(batch_sizes))
        assert terms.signal == pytest.approx((gradient**2).sum(), rel=0.02)
        assert terms.variance == pytest.approx((deviation**2).sum(), rel=0.02)


def test_no_scale_without_a_gradient_above_the_noise():
    assert noise_scale_from_terms(-0.1, 3) is None
    assert noise_scale_from_terms(0, 3) is None


@pytest.mark.parametrize(("local_batch", "total_batch"), [(8, 8), (16, 8), (0, 8)])
def test_two_different_batch_sizes_are_required(local_batch, total_batch):
    with raises_code("run-damaged"):
        estimate_noise_terms(1, 1, local_batch, total_batch)


def test_batches_of_one_example_and_of_less_on_average_have_terms():
    assert estimate_noise_terms(local_norm=84, total_norm=44, local_batch=1, total_batch=2) == pytest.approx((4, 80))
    assert estimate_noise_terms(local_norm=164, total_norm=84, local_batch=0.5, total_batch=1) == pytest.approx((4, 80))


def test_no_scale_where_noise_is_not_above_zero():
    assert noise_scale_from_terms(3, 0) is None and noise_scale_from_terms(3, -1) is None


@pytest.mark.parametrize(
    ("options", "draws", "reason"),
    [
        ({}, 0, "no step was measured"),
        ({}, 3, "too few to tell it from noise"),
        ({"workers": 2, "sync": "local:4"}, 0, "weights of their own"),
        ({"workers": 2, "sync": "server", "servers": 1}, 0, "servers see"),
        ({"workers": 2, "compression": "int8"}, 0, "compressed gradients"),
        ({"workload": None, "command": "python train.py {lr}"}, 0, "the program does not show its gradients"),
    ],
    ids=str,
)
def test_a_run_without_a_noise_scale_says_why(options, draws, reason):
    assert reason in explain_missing_noise_scale(TrainConfig(**{"workload": "digits"} | options), draws)
