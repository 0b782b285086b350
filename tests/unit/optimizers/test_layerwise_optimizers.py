"""LARS and LAMB against the formulas of their papers, parameter by parameter."""

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.registries.optimizer_registry import OPTIMIZERS
from tests.unit.optimizers.test_run_optimizer import TORCH_OPTIMIZERS

BETA1 = 0.9


class ReferenceLARS:
    """You, Gitman and Ginsburg, 2017, algorithm 1, with a ratio of 1 for biases and norms and for zeros."""

    def __init__(self, config, parameters):
        self.config, self.parameters = config, list(parameters)
        self.velocities = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, lr):
        for parameter, velocity in zip(self.parameters, self.velocities, strict=True):
            decay = self.config.weight_decay if parameter.ndim > 1 or self.config.decay_on == "all" else 0.0
            weight_norm, gradient_norm = parameter.norm(), parameter.grad.norm()
            local_lr = 1.0
            if parameter.ndim > 1 and weight_norm > 0 and gradient_norm > 0:
                local_lr = self.config.trust * weight_norm / (gradient_norm + decay * weight_norm)
            velocity.copy_(self.config.momentum * velocity + lr * local_lr * (parameter.grad + decay * parameter))
            parameter -= velocity


class ReferenceLAMB:
    """You et al., 2019, algorithm 2 with phi(x) = x, and a ratio of 1 for biases and norms and for zeros."""

    def __init__(self, config, parameters):
        self.config, self.parameters, self.count = config, list(parameters), 0
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, lr):
        self.count += 1
        for parameter, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            decay = self.config.weight_decay if parameter.ndim > 1 or self.config.decay_on == "all" else 0.0
            gradient, beta2 = parameter.grad, self.config.beta2
            mean.copy_(BETA1 * mean + (1 - BETA1) * gradient)
            square.copy_(beta2 * square + (1 - beta2) * gradient**2)
            ratio = mean / (1 - BETA1**self.count)
            ratio = ratio / ((square / (1 - beta2**self.count)).sqrt() + self.config.epsilon)
            update = ratio + decay * parameter
            trust = 1.0
            if parameter.ndim > 1 and parameter.norm() > 0 and update.norm() > 0:
                trust = parameter.norm() / update.norm()
            parameter -= lr * trust * update


REFERENCES = {"lars": (ReferenceLARS, {"lr": 0.01, "trust": 0.3}), "lamb": (ReferenceLAMB, {"lr": 0.02})}
CASES = [
    {"weight_decay": 0.0},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decay_on": "matrices", "momentum": 0.0, "beta2": 0.95, "epsilon": 1e-3},
]


def build_model():
    """Build a network with a norm, a layer that starts from zero, and one that gets no gradient.

    The layer before the norm has no bias, whose gradient would be rounding alone.
    """
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 2)
    )
    model.append(nn.Linear(2, 2, bias=False))
    nn.init.zeros_(model[4].weight)
    return model.double().to(memory_format=torch.channels_last)


def compute_gradients(model, step):
    model.zero_grad()
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(8, 3, 4, 4, generator=generator, dtype=torch.float64)
    (model[:5](images) - torch.randn(8, 2, generator=generator, dtype=torch.float64)).square().sum().backward()
    model[5].weight.grad = torch.zeros_like(model[5].weight)


def test_every_optimizer_of_the_registry_is_compared_with_another_implementation():
    assert set(OPTIMIZERS) == {*TORCH_OPTIMIZERS, *REFERENCES}


@pytest.mark.parametrize("changes", CASES, ids=["no-decay", "decay", "matrices"])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_hundred_steps_are_those_of_the_paper(name, changes):
    reference_class, options = REFERENCES[name]
    config = TrainConfig(workload="digits", optimizer=name, **options, **changes).with_defaults()
    model, reference_model = build_model(), build_model()
    optimizer = RunOptimizer(config, dict(model.named_parameters()))
    reference = reference_class(config, reference_model.parameters())
    start = [parameter.detach().clone() for parameter in list(model.parameters())[:-1]]
    for step in range(100):
        lr = config.lr / (1 + step / 20)
        compute_gradients(model, step)
        compute_gradients(reference_model, step)
        optimizer.step(lr)
        reference.step(lr)
    for parameter, expected in zip(model.parameters(), reference_model.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-12, atol=1e-14)
    assert all(not torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=False))
