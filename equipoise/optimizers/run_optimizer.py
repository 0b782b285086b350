"""Optimizer of a run: groups of parameters with their own learning rates, and its state as tensors by name."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.registries.optimizer_registry import OPTIMIZERS


class RunOptimizer:
    """Optimizer of the registry over groups of parameters; a missing gradient counts as zero, as on several workers."""

    def __init__(
        self, config: TrainConfig, named_parameters: dict[str, nn.Parameter], lr_scales: dict[str, float] | None = None
    ) -> None:
        """Group parameters by `lr_scales`, their fractions of the learning rate (by default 1), and by weight decay."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in named_parameters.items():
            decays = parameter.ndim > 1 or config.decay_on == "all"
            key = (lr_scales or {}).get(name, 1.0), config.weight_decay if decays else 0.0
            groups.setdefault(key, []).append(parameter)
        self.named_parameters, self.lr_scales = named_parameters, lr_scales or {}
        self.optimizer = build_optimizer(
            config, [{"params": group, "weight_decay": decay} for (_, decay), group in groups.items()]
        )
        scales = [scale for scale, _ in groups]
        self.scaled_groups = list(zip(scales, self.optimizer.param_groups, strict=True))

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step along the gradients that the parameters hold."""
        for scale, group in self.scaled_groups:
            group["lr"] = lr * scale
            for parameter in group["params"]:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of each parameter as PARAMETER.KEY; some optimizers have none before their first step."""
        states = {name: self.optimizer.state.get(parameter, {}) for name, parameter in self.named_parameters.items()}
        return {f"{name}.{key}": require_tensor(key, value) for name in states for key, value in states[name].items()}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`."""
        for name, value in tensors.items():
            parameter_name, _, key = name.rpartition(".")
            parameter = self.named_parameters[parameter_name]
            state = self.optimizer.state[parameter]
            if key in state:
                state[key].copy_(value)
            else:
                state[key] = restore_state_tensor(key, value, parameter)


def build_optimizer(config: TrainConfig, groups: list[dict[str, Any]]) -> Any:
    """Build the configured optimizer over groups of parameters."""
    entry = OPTIMIZERS[config.optimizer]
    module, _, attribute = entry.constructor.partition(":")
    arguments = {argument: getattr(config, option) for argument, option in entry.option_by_argument.items()}
    return getattr(import_module(module), attribute)(groups, lr=config.lr, **arguments)


def require_tensor(key: str, value: object) -> Tensor:
    """Return a value of an optimizer's state; only tensors can be saved."""
    if not isinstance(value, Tensor):
        raise TypeError(f"cannot save an optimizer whose {key} is a {type(value).__name__}: only tensors can be saved")
    return value


def restore_state_tensor(key: str, value: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return a saved tensor on the parameter's device, with its memory layout if both have the same shape.

    It keeps its own dtype, which torch.optim's `load_state_dict` does not. The count of steps stays on the CPU, where
    torch.optim has it unless it is asked for another place.
    """
    if key == "step":
        return value.clone()
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)
