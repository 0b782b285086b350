"""LAMB, Adam with a rate for each layer (You et al., 2019, arXiv:1904.00962).

With Adam's means m of the gradient and v of its square, both with bias correction, weights w and weight decay d:

    u = m / (sqrt(v) + eps) + d w,    w <- w - lr |w| / |u| u

Biases and norms move by lr alone.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from equipoise.optimizers.fused_optimizers import ADAMW_BETA1, collect_parameter_states, create_moments
from equipoise.optimizers.layer_norms import LayerPlaces, divide_norms


class LAMB:
    """LAMB with the interface of `torch.optim`; every parameter must have a gradient."""

    def __init__(
        self, groups: Sequence[dict[str, Any]], lr: float, beta2: float, eps: float, weight_decay: float
    ) -> None:
        self.beta2, self.eps = beta2, eps
        self.param_groups = [{"weight_decay": weight_decay, **group, "lr": lr} for group in groups]
        self.places = [LayerPlaces(group["params"]) for group in groups]
        self.moments = [
            create_moments(group["params"], ["mean", "square"])
            | {"steps": [torch.zeros((), device=parameter.device) for parameter in group["params"]]}
            for group in groups
        ]
        self.state = collect_parameter_states(self.param_groups, self.moments)

    def step(self) -> None:
        """Take one step along the gradients that the parameters hold."""
        for group, places, moments in zip(self.param_groups, self.places, self.moments, strict=True):
            parameters: list[Tensor] = group["params"]
            torch._foreach_add_(moments["steps"], 1)
            # Adam's step from zero with a learning rate of 1 is -m / (sqrt(v) + eps)
            changes = create_moments(group["params"], ["change"])["change"]
            torch._fused_adam_(
                changes,
                [parameter.grad for parameter in group["params"]],
                moments["mean"],
                moments["square"],
                [],
                moments["steps"],
                lr=1.0,
                beta1=ADAMW_BETA1,
                beta2=self.beta2,
                weight_decay=0.0,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )
            if group["weight_decay"]:
                torch._foreach_sub_(changes, parameters, alpha=group["weight_decay"])
            ratios = None
            if places.layers:
                weights, steps = places.stack_norms(parameters), places.stack_norms(changes)
                ratios = divide_norms(weights, steps, weights, steps)
            places.scale(changes, ratios, group["lr"])
            torch._foreach_add_(parameters, changes)
