"""Tests of the noise scale terms against exact values from per-example gradients."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.number_bounds import MIN_LEARNING_RATE
from equipoise.training.gradient_norms import half_batch_norms
from equipoise.training.loop import Training
from tests.support.gloo import run_with_gloo

BASE_CONFIG = TrainConfig(
    workload="digits", batch_size=32, lr=0.05, target=2.0, augment=False, eval_every=10**9, noise_scale_every=1
)
GLOBAL_BATCH, NUM_STEPS = 128, 500


def train_weights(step):
    """Return the weights of a run after `step` steps."""
    training = Training(replace(BASE_CONFIG, noise_scale_every=0))
    training.steps.begin(training.loader, 0)
    training.take_steps(step)
    return training.model.state_dict()


def compute_exact_terms(training):
    """Return |G|^2 of the population and tr(Sigma) at the training's weights.

    |G|^2 is the mean product of the gradients of two different examples.
    """
    images = training.loader.prepare_inputs(training.loader.train_split.inputs)
    parameters = {name: value.detach() for name, value in training.model.named_parameters()}

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(training.model, parameters, image[None]), label[None])

    gradients = vmap(grad(loss), (None, 0, 0))(parameters, images, training.loader.train_split.targets)
    rows = torch.cat([value.flatten(1) for value in gradients.values()], 1).double()
    count, mean = len(rows), rows.mean(0)
    variance = ((rows - mean) ** 2).sum() / (count - 1)
    return float(mean @ mean - variance / count), float(variance)


def average_terms(config, weights):
    """Return both terms averaged over all steps of a run with the smallest learning rate, which keeps the weights."""
    training = Training(replace(config, lr=MIN_LEARNING_RATE))
    training.model.load_state_dict(weights)
    terms = [(lap.noise_terms(), lap.draws) for lap in training.laps()]
    draws = sum(count for _, count in terms)
    return [sum(getattr(term, name) * count for term, count in terms) / draws for name in ("signal", "variance")]


# steps after which weights are taken: noise scales of about 55, 13 and 77 examples
@pytest.mark.parametrize(("workers", "step"), [(1, 60), (1, 100), (1, 200), (2, 100)])
def test_terms_agree_with_per_example_gradients(tmp_path, step, workers):
    weights = train_weights(step)
    training = Training(BASE_CONFIG)
    training.model.load_state_dict(weights)
    config = replace(
        BASE_CONFIG, workers=workers, batch_size=GLOBAL_BATCH // workers, max_examples=GLOBAL_BATCH * NUM_STEPS
    )
    measured = run_with_gloo(workers, tmp_path, average_terms, config, weights)[0]
    assert measured == pytest.approx(compute_exact_terms(training), rel=0.05)


def test_half_batch_norms_change_neither_weights_nor_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    half_batch_norms(model, F.cross_entropy, torch.randn(10, 4), torch.randint(3, (10,)))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_probes_do_not_change_the_trained_weights():
    with_probes, without = (
        Training(replace(BASE_CONFIG, noise_scale_every=noise_scale_every, max_examples=640))
        for noise_scale_every in (1, 0)
    )
    for training in (with_probes, without):
        for _ in training.laps():
            pass
    assert with_probes.finished_laps[-1].draws > 0
    assert without.finished_laps[-1].draws == 0
    weights = with_probes.model.state_dict(), without.model.state_dict()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
