"""The noise scale's terms against per-example gradients, taken one by one."""

from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.training.gradient_norms import half_batch_norms
from equipoise.training.loop import Training
from tests.support.gloo import run_with_gloo

BASE = TrainConfig(
    workload="digits", batch_size=32, lr=0.05, target=2.0, augment=False, eval_every=10**9, noise_scale_every=1
)
POINTS = [60, 100, 200]  # steps of a run: noise scales of about 55, 13 and 77 examples
BATCH, DRAWS = 128, 500


def at(step):
    """Weights of a run after some steps."""
    training = Training(replace(BASE, noise_scale_every=0))
    batches = training.loader.train_batches(training.micro_indices, 0)
    for _ in range(step):
        training._run_step(batches)
    return training.model.state_dict()


def exact(training):
    """tr(Sigma), and |G|^2 of the population: the mean product of the gradients of two different examples."""
    images = training.loader.normalize(training.loader.train_split.pictures)
    parameters = {name: value.detach() for name, value in training.model.named_parameters()}

    def loss(parameters, image, label):
        return F.cross_entropy(functional_call(training.model, parameters, image[None]), label[None])

    gradients = vmap(grad(loss), (None, 0, 0))(parameters, images, training.loader.train_split.labels)
    rows = torch.cat([value.flatten(1) for value in gradients.values()], 1).double()
    count, mean = len(rows), rows.mean(0)
    variance = ((rows - mean) ** 2).sum() / (count - 1)
    return float(mean @ mean - variance / count), float(variance)


def averaged(trial, weights):
    """The two terms averaged over many draws, none of which moves the weights."""
    training = Training(replace(trial, lr=0.0))
    training.model.load_state_dict(weights)
    terms = [(lap.noise_terms(), lap.draws) for lap in training.laps()]
    draws = sum(count for _, count in terms)
    return [sum(getattr(term, name) * count for term, count in terms) / draws for name in ("signal", "variance")]


@pytest.mark.parametrize("step", POINTS)
@pytest.mark.parametrize("workers", [1, 2])
def test_terms_agree_with_per_example_gradients(tmp_path, step, workers):
    weights = at(step)
    training = Training(BASE)
    training.model.load_state_dict(weights)
    trial = replace(BASE, workers=workers, batch_size=BATCH // workers, max_examples=BATCH * DRAWS)
    measured = run_with_gloo(workers, tmp_path, averaged, trial, weights)[0]
    assert measured == pytest.approx(exact(training), rel=0.05)


def test_a_probe_leaves_the_training_as_it_was():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    half_batch_norms(model, F.cross_entropy, torch.randn(10, 4), torch.randint(3, (10,)))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_run_with_probes_is_the_run_without():
    with_probes, without = (Training(replace(BASE, noise_scale_every=probe, max_examples=640)) for probe in (1, 0))
    for training in (with_probes, without):
        for _ in training.laps():
            pass
    assert with_probes.finished_laps[-1].draws > 0
    assert without.finished_laps[-1].draws == 0
    states = with_probes.model.state_dict(), without.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
