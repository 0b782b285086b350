"""SGD with momentum and AdamW, by torch's fused kernels.

Moments are plain tensors by name, and the kernels are called directly: on a small
model the bookkeeping of torch's optimizers takes longer than the step itself.
"""

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig

ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPS = 0.9, 0.999, 1e-8  # the usual defaults


class FusedOptimizer:
    """Optimizer over groups of parameters; a missing gradient counts as zero, as it does on several workers."""

    def __init__(
        self, config: TrainConfig, named_parameters: dict[str, nn.Parameter], lr_scales: dict[str, float] | None = None
    ) -> None:
        """Group parameters by `lr_scales`, their fractions of the learning rate; 1 for parameters not in it."""
        groups: dict[float, dict[str, nn.Parameter]] = {}
        for name, parameter in named_parameters.items():
            groups.setdefault((lr_scales or {}).get(name, 1.0), {})[name] = parameter
        self.groups = [(scale, ParamGroup(config, members)) for scale, members in groups.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Take one step along the gradients that the parameters hold."""
        for scale, group in self.groups:
            group.step(lr * scale)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the moments of all groups as PARAMETER.MOMENT."""
        return {name: value for _, group in self.groups for name, value in group.state_dict().items()}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Copy the moments from the tensors of `state_dict`."""
        for name, moment in self.state_dict().items():
            moment.copy_(tensors[name])


class ParamGroup:
    """Group of parameters that share a learning rate."""

    def __init__(self, config: TrainConfig, named_parameters: dict[str, nn.Parameter]) -> None:
        self.config = config
        self.named_parameters = named_parameters
        self.parameters: list[Tensor] = list(named_parameters.values())
        names = {"sgd": ["momentum"] if config.momentum else [], "adamw": ["mean", "square"]}[config.optimizer]
        # same memory layout as the parameter, because fused kernels walk both in memory order
        self.moments = {name: [torch.zeros_like(p, requires_grad=False) for p in self.parameters] for name in names}
        self.step_counts = [torch.zeros((), device=p.device) for p in self.parameters]

    def step(self, lr: float) -> None:
        """Take one step along the gradients that the parameters hold."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        if self.config.optimizer == "adamw":
            self._step_adamw(gradients, lr)
        else:
            self._step_sgd(gradients, lr)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the moments of this group as PARAMETER.MOMENT."""
        moments = self.moments | ({"steps": self.step_counts} if self.config.optimizer == "adamw" else {})
        return {
            f"{name}.{moment}": value
            for moment, values in moments.items()
            for name, value in zip(self.named_parameters, values, strict=True)
        }

    def _step_sgd(self, gradients: list[Tensor], lr: float) -> None:
        torch._fused_sgd_(
            self.parameters,
            gradients,
            self.moments.get("momentum", []),
            lr=lr,
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,  # moments start at zero
        )

    def _step_adamw(self, gradients: list[Tensor], lr: float) -> None:
        torch._foreach_add_(self.step_counts, 1)
        torch._fused_adamw_(
            self.parameters,
            gradients,
            self.moments["mean"],
            self.moments["square"],
            [],
            self.step_counts,
            lr=lr,
            beta1=ADAMW_BETA1,
            beta2=ADAMW_BETA2,
            weight_decay=self.config.weight_decay,
            eps=ADAMW_EPS,
            amsgrad=False,
            maximize=False,
        )
