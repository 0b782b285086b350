"""SGD with momentum and AdamW, by torch's fused kernels.

Moments are plain tensors by name, and the kernels are called as they are: on a small
model the bookkeeping of torch's optimizers takes longer than the step itself.
"""

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig

ADAMW_BETA1, ADAMW_BETA2, ADAMW_EPS = 0.9, 0.999, 1e-8  # of AdamW, as everyone has them


class FusedOptimizer:
    """Moves parameters along their gradients; a parameter without one counts as having zero, as on several workers."""

    def __init__(
        self, config: TrainConfig, named_parameters: dict[str, nn.Parameter], lr_scales: dict[str, float] | None = None
    ) -> None:
        """`shares`: of the learning rate, for the parameters named there; all of it for others."""
        found: dict[float, dict[str, nn.Parameter]] = {}
        for name, parameter in named_parameters.items():
            found.setdefault((lr_scales or {}).get(name, 1.0), {})[name] = parameter
        self.groups = [(share, ParamGroup(config, members)) for share, members in found.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One step along the gradients that the parameters hold."""
        for share, group in self.groups:
            group.step(lr * share)

    def state_dict(self) -> dict[str, Tensor]:
        """All moments, as PARAMETER.MOMENT."""
        return {name: value for _, group in self.groups for name, value in group.state_dict().items()}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Bring the moments to what `tensors` told."""
        for name, moment in self.state_dict().items():
            moment.copy_(tensors[name])


class ParamGroup:
    """Parameters that share a learning rate."""

    def __init__(self, config: TrainConfig, named_parameters: dict[str, nn.Parameter]) -> None:
        self.trial = config
        self.named_parameters = named_parameters
        self.parameters: list[Tensor] = list(named_parameters.values())
        names = {"sgd": ["momentum"] if config.momentum else [], "adamw": ["mean", "square"]}[config.optimizer]
        # laid out as the parameter is: fused kernels walk both in the order of memory
        self.moments = {name: [torch.zeros_like(p, requires_grad=False) for p in self.parameters] for name in names}
        self.step_counts = [torch.zeros((), device=p.device) for p in self.parameters]

    def step(self, lr: float) -> None:
        """One step along the gradients that the parameters hold."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        if self.trial.optimizer == "adamw":
            self._step_adamw(gradients, lr)
        else:
            self._step_sgd(gradients, lr)

    def state_dict(self) -> dict[str, Tensor]:
        """Its moments, as PARAMETER.MOMENT."""
        moments = self.moments | ({"steps": self.step_counts} if self.trial.optimizer == "adamw" else {})
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
            momentum=self.trial.momentum,
            weight_decay=self.trial.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,  # moments begin as zeros
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
            weight_decay=self.trial.weight_decay,
            eps=ADAMW_EPS,
            amsgrad=False,
            maximize=False,
        )
