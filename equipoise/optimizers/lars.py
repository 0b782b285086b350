"""LARS, SGD with a rate for each layer (You, Gitman and Ginsburg, 2017, arXiv:1708.03888).

With the gradient g of the weights w of a layer, weight decay d and momentum m:

    v <- m v + lr trust |w| / (|g| + d |w|) (g + d w),    w <- w - v

Biases and norms move by lr alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equipoise.optimizers.fused_optimizers import collect_parameter_states, create_moments
from equipoise.optimizers.layer_norms import LayerPlaces, divide_norms


class LARS:
    """LARS with the interface of `torch.optim`; every parameter must have a gradient, which a step overwrites."""

    def __init__(
        self, groups: Sequence[dict[str, Any]], lr: float, momentum: float, trust: float, weight_decay: float
    ) -> None:
        self.momentum, self.trust = momentum, trust
        self.param_groups = [{"weight_decay": weight_decay, **group, "lr": lr} for group in groups]
        self.places = [LayerPlaces(group["params"]) for group in groups]
        self.moments = [create_moments(group["params"], ["momentum"] if momentum else []) for group in groups]
        self.state = collect_parameter_states(self.param_groups, self.moments)

    def step(self) -> None:
        """Take one step along the gradients that the parameters hold."""
        for group, places, moments in zip(self.param_groups, self.places, self.moments, strict=True):
            parameters: list[Tensor] = group["params"]
            changes = [parameter.grad for parameter in parameters if parameter.grad is not None]
            ratios = None
            if places.layers:
                weights, steps = places.stack_norms(parameters), places.stack_norms(changes)
                ratios = divide_norms(self.trust * weights, steps + group["weight_decay"] * weights, weights, steps)
            if group["weight_decay"]:
                torch._foreach_add_(changes, parameters, alpha=group["weight_decay"])
            places.scale(changes, ratios, group["lr"])
            torch._fused_sgd_(
                parameters,
                changes,
                moments.get("momentum", []),
                lr=1.0,  # each change has its own
                momentum=self.momentum,
                weight_decay=0.0,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,  # moments start at zero
            )
