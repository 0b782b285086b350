import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.optimizers import FusedOptimizer

TORCH_OPTIMIZERS = {
    "sgd": lambda config, parameters: torch.optim.SGD(
        parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    ),
    "adamw": lambda config, parameters: torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay),
}


def build_model():
    torch.manual_seed(0)
    return (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).double().to(memory_format=torch.channels_last)
    )


def compute_gradients(model, step):
    model.zero_grad()
    images = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    model(images).square().sum().backward()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_steps_equal_those_of_the_torch_optimizer(name, momentum):
    config = TrainConfig(workload="digits", optimizer=name, lr=0.01, momentum=momentum, weight_decay=0.1)
    model, reference_model = build_model(), build_model()
    optimizer, reference_optimizer = (
        FusedOptimizer(config, dict(model.named_parameters())),
        TORCH_OPTIMIZERS[name](config, reference_model.parameters()),
    )
    for step in range(5):
        compute_gradients(model, step)
        compute_gradients(reference_model, step)
        optimizer.step(config.lr)
        reference_optimizer.step()
    for parameter, expected in zip(model.parameters(), reference_model.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_moments_restored_from_contiguous_tensors_continue_bit_equal(name):
    config = TrainConfig(workload="digits", optimizer=name, lr=0.01)
    model = build_model()
    optimizer = FusedOptimizer(config, dict(model.named_parameters()))
    compute_gradients(model, 0)
    optimizer.step(0.01)
    restored_model = build_model()
    restored_model.load_state_dict(model.state_dict())
    restored_optimizer = FusedOptimizer(config, dict(restored_model.named_parameters()))
    restored_optimizer.load_state_dict(
        {key: value.clone().contiguous() for key, value in optimizer.state_dict().items()}
    )
    for stepped_model, stepped_optimizer in ((model, optimizer), (restored_model, restored_optimizer)):
        compute_gradients(stepped_model, 1)
        stepped_optimizer.step(0.01)
    for parameter, restored_parameter in zip(model.parameters(), restored_model.parameters(), strict=True):
        assert torch.equal(parameter, restored_parameter)


def test_a_parameter_without_gradient_only_decays():
    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    FusedOptimizer(TrainConfig(workload="digits", weight_decay=0.5), {"weight": layer.weight}).step(0.1)
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5))
