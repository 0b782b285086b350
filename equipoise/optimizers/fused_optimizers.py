"""SGD with momentum and AdamW, by torch's fused kernels called directly.

The bookkeeping of torch.optim around the same kernels takes longer than the kernels on a small model, and building one
of its optimizers imports torch's compiler first: see docs/decisions/0007-fused-optimizers.md for the numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

ADAMW_BETA1 = 0.9  # the usual default


class FusedSGD:
    """SGD with the interface of `torch.optim`; every parameter must have a gradient."""

    def __init__(self, groups: Sequence[dict[str, Any]], lr: float, momentum: float, weight_decay: float) -> None:
        self.momentum = momentum
        self.param_groups = [{"weight_decay": weight_decay, **group, "lr": lr} for group in groups]
        self.moments = [create_moments(group["params"], ["momentum"] if momentum else []) for group in groups]
        self.state = collect_parameter_states(self.param_groups, self.moments)

    def step(self) -> None:
        """Take one step along the gradients that the parameters hold."""
        for group, moments in zip(self.param_groups, self.moments, strict=True):
            torch._fused_sgd_(
                group["params"],
                [parameter.grad for parameter in group["params"]],
                moments.get("momentum", []),
                lr=group["lr"],
                momentum=self.momentum,
                weight_decay=group["weight_decay"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,  # moments start at zero
            )


class FusedAdamW:
    """AdamW with the interface of `torch.optim`; every parameter must have a gradient."""

    def __init__(
        self, groups: Sequence[dict[str, Any]], lr: float, beta2: float, eps: float, weight_decay: float
    ) -> None:
        self.beta2, self.eps = beta2, eps
        self.param_groups = [{"weight_decay": weight_decay, **group, "lr": lr} for group in groups]
        self.moments = [
            create_moments(group["params"], ["mean", "square"])
            | {"steps": [torch.zeros((), device=parameter.device) for parameter in group["params"]]}
            for group in groups
        ]
        self.state = collect_parameter_states(self.param_groups, self.moments)

    def step(self) -> None:
        """Take one step along the gradients that the parameters hold."""
        for group, moments in zip(self.param_groups, self.moments, strict=True):
            torch._foreach_add_(moments["steps"], 1)
            torch._fused_adamw_(
                group["params"],
                [parameter.grad for parameter in group["params"]],
                moments["mean"],
                moments["square"],
                [],
                moments["steps"],
                lr=group["lr"],
                beta1=ADAMW_BETA1,
                beta2=self.beta2,
                weight_decay=group["weight_decay"],
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )


def create_moments(parameters: Sequence[nn.Parameter], names: Sequence[str]) -> dict[str, list[Tensor]]:
    """Create moments of zero in the memory layout of their parameter: fused kernels walk both in memory order."""
    return {name: [torch.zeros_like(parameter, requires_grad=False) for parameter in parameters] for name in names}


def collect_parameter_states(
    groups: Sequence[dict[str, Any]], moments: Sequence[dict[str, list[Tensor]]]
) -> dict[nn.Parameter, dict[str, Tensor]]:
    """Return the moments by parameter, as `torch.optim` keeps them: the same tensors that `step` changes."""
    return {
        parameter: {name: values[index] for name, values in group_moments.items()}
        for group, group_moments in zip(groups, moments, strict=True)
        for index, parameter in enumerate(group["params"])
    }
