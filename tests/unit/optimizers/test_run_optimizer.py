import inspect

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.registries.optimizer_registry import OPTIMIZERS, OptimizerEntry

TORCH_OPTIMIZERS = {
    "sgd": lambda config, parameters: torch.optim.SGD(
        parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    ),
    "adamw": lambda config, parameters: torch.optim.AdamW(
        parameters, lr=config.lr, eps=config.epsilon, weight_decay=config.weight_decay
    ),
    "adafactor": lambda config, parameters: torch.optim.Adafactor(
        parameters, lr=config.lr, weight_decay=config.weight_decay
    ),
}
"""the optimizer of torch that takes the same steps; those that torch has not are in test_layerwise_optimizers.py"""
OTHER_TORCH_OPTIMIZERS = sorted(
    name
    for name, optimizer in vars(torch.optim).items()
    if inspect.isclass(optimizer)
    and issubclass(optimizer, torch.optim.Optimizer)
    # a base class; steps that need a closure; sparse gradients only; matrices only
    and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")
)


def build_model(dtype=torch.float64):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    return layers.to(dtype=dtype).to(memory_format=torch.channels_last)


def compute_gradients(model, step):
    model.zero_grad()
    images = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    model(images.to(model[0].weight.dtype)).square().sum().backward()


def take_steps(model, optimizer, steps, lr=0.01):
    for step in steps:
        compute_gradients(model, step)
        optimizer.step(lr)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", TORCH_OPTIMIZERS)
def test_steps_equal_those_of_the_torch_optimizer(name, momentum):
    config = TrainConfig(
        workload="digits", optimizer=name, lr=0.01, momentum=momentum, weight_decay=0.1, epsilon=1e-3
    ).with_defaults()
    model, reference_model = build_model(), build_model()
    optimizer, reference_optimizer = (
        RunOptimizer(config, dict(model.named_parameters())),
        TORCH_OPTIMIZERS[name](config, reference_model.parameters()),
    )
    for step in range(5):
        compute_gradients(model, step)
        compute_gradients(reference_model, step)
        optimizer.step(config.lr)
        reference_optimizer.step()
    for parameter, expected in zip(model.parameters(), reference_model.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-12, atol=1e-14)


def require_bit_equal_resumption(config, dtype=torch.float64):
    """Take steps, restore weights and state from a file's bytes, and compare further steps with undisturbed ones."""
    model = build_model(dtype)
    optimizer = RunOptimizer(config, dict(model.named_parameters()))
    take_steps(model, optimizer, range(3))
    saved_state = load(save({name: value.contiguous() for name, value in optimizer.state_dict().items()}))
    resumed_model = build_model(dtype)
    resumed_model.load_state_dict(model.state_dict())
    resumed_optimizer = RunOptimizer(config, dict(resumed_model.named_parameters()))
    resumed_optimizer.load_state_dict(saved_state)
    expected_state, state = optimizer.state_dict(), resumed_optimizer.state_dict()
    assert state.keys() == expected_state.keys()
    for name, expected in expected_state.items():
        assert torch.equal(state[name], expected)
        assert (state[name].dtype, state[name].stride()) == (expected.dtype, expected.stride())
    for stepped_model, stepped_optimizer in ((model, optimizer), (resumed_model, resumed_optimizer)):
        take_steps(stepped_model, stepped_optimizer, range(3, 8))
    for parameter, resumed_parameter in zip(model.parameters(), resumed_model.parameters(), strict=True):
        assert torch.equal(parameter, resumed_parameter)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_optimizer_continues_bit_equal(name):
    require_bit_equal_resumption(TrainConfig(workload="digits", optimizer=name, lr=0.01).with_defaults())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OTHER_TORCH_OPTIMIZERS)
def test_every_optimizer_of_torch_could_be_added_to_the_registry(name, dtype, monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "sgd", OptimizerEntry(f"torch.optim:{name}", {}))
    require_bit_equal_resumption(TrainConfig(workload="digits", lr=0.01).with_defaults(), dtype)


def test_state_that_is_no_tensor_is_reported_as_a_bug(monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "sgd", OptimizerEntry("torch.optim:SGD", {}))
    layer = nn.Linear(2, 1)
    optimizer = RunOptimizer(TrainConfig(workload="digits").with_defaults(), dict(layer.named_parameters()))
    optimizer.optimizer.state[layer.weight]["count"] = 3
    with pytest.raises(TypeError, match="whose count is a int"):
        optimizer.state_dict()


def test_learning_rate_of_a_group_is_its_fraction_of_the_given_one():
    layer = nn.Linear(2, 1)
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    config = TrainConfig(workload="digits", momentum=0.0).with_defaults()
    RunOptimizer(config, dict(layer.named_parameters()), {"weight": 0.1}).step(0.5)
    torch.testing.assert_close(layer.weight.detach(), before["weight"] - 0.05)
    torch.testing.assert_close(layer.bias.detach(), before["bias"] - 0.5)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_parameter_without_gradient_only_decays(name):
    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    config = TrainConfig(workload="digits", optimizer=name, weight_decay=0.5).with_defaults()
    RunOptimizer(config, {"weight": layer.weight}).step(0.1)
    torch.testing.assert_close(layer.weight.detach(), before * (1 - 0.1 * 0.5))
