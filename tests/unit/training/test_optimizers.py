import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.optimizers import FusedOptimizer

THEIRS = {
    "sgd": lambda trial, parameters: torch.optim.SGD(
        parameters, lr=trial.lr, momentum=trial.momentum, weight_decay=trial.weight_decay
    ),
    "adamw": lambda trial, parameters: torch.optim.AdamW(parameters, lr=trial.lr, weight_decay=trial.weight_decay),
}


def network():
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).double().to(memory_format=torch.channels_last)
    )


def gradients(model, step):
    model.zero_grad()
    images = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    model(images).square().sum().backward()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_are_those_of_torchs_own_optimizer(name, momentum):
    trial = TrainConfig(workload="digits", optimizer=name, lr=0.01, momentum=momentum, weight_decay=0.1)
    ours, theirs = network(), network()
    optimizer, reference = (
        FusedOptimizer(trial, dict(ours.named_parameters())),
        THEIRS[name](trial, theirs.parameters()),
    )
    for step in range(5):
        gradients(ours, step)
        gradients(theirs, step)
        optimizer.step(trial.lr)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_moments_read_back_from_contiguous_tensors_go_on_to_the_bit(name):
    trial = TrainConfig(workload="digits", optimizer=name, lr=0.01)
    model = network()
    optimizer = FusedOptimizer(trial, dict(model.named_parameters()))
    gradients(model, 0)
    optimizer.step(0.01)
    again = network()
    again.load_state_dict(model.state_dict())
    later = FusedOptimizer(trial, dict(again.named_parameters()))
    later.load_state_dict({key: value.clone().contiguous() for key, value in optimizer.state_dict().items()})
    for network_, stepper in ((model, optimizer), (again, later)):
        gradients(network_, 1)
        stepper.step(0.01)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_parameter_without_gradient_only_decays():
    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    FusedOptimizer(TrainConfig(workload="digits", weight_decay=0.5), {"weight": layer.weight}).step(0.1)
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5))
