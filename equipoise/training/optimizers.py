"""SGD with momentum and AdamW, by torch's fused kernels.

Moments are plain tensors by name, and the kernels are called as they are: on a small
model the bookkeeping of torch's optimizers takes longer than the step itself.
"""

import torch
from torch import Tensor, nn

from equipoise.config import Trial

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # of AdamW, as everyone has them


class Optimizer:
    """Moves parameters along their gradients; a parameter without one counts as having zero, as on several workers."""

    def __init__(self, trial: Trial, trained: dict[str, nn.Parameter], shares: dict[str, float] | None = None) -> None:
        """`shares`: of the learning rate, for the parameters named there; all of it for others."""
        found: dict[float, dict[str, nn.Parameter]] = {}
        for name, parameter in trained.items():
            found.setdefault((shares or {}).get(name, 1.0), {})[name] = parameter
        self.groups = [(share, Group(trial, members)) for share, members in found.items()]

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One step along the gradients that the parameters hold."""
        for share, group in self.groups:
            group.step(lr * share)

    def tensors(self) -> dict[str, Tensor]:
        """All moments, as PARAMETER.MOMENT."""
        return {name: value for _, group in self.groups for name, value in group.tensors().items()}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Bring the moments to what `tensors` told."""
        for name, moment in self.tensors().items():
            moment.copy_(tensors[name])


class Group:
    """Parameters that share a learning rate."""

    def __init__(self, trial: Trial, trained: dict[str, nn.Parameter]) -> None:
        self.trial = trial
        self.trained = trained
        self.parameters: list[Tensor] = list(trained.values())
        names = {"sgd": ["momentum"] if trial.momentum else [], "adamw": ["mean", "square"]}[trial.optimizer]
        # laid out as the parameter is: fused kernels walk both in the order of memory
        self.moments = {name: [torch.zeros_like(p, requires_grad=False) for p in self.parameters] for name in names}
        self.steps = [torch.zeros((), device=p.device) for p in self.parameters]

    def step(self, lr: float) -> None:
        """One step along the gradients that the parameters hold."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        if self.trial.optimizer == "adamw":
            self._adamw(gradients, lr)
        else:
            self._sgd(gradients, lr)

    def tensors(self) -> dict[str, Tensor]:
        """Its moments, as PARAMETER.MOMENT."""
        moments = self.moments | ({"steps": self.steps} if self.trial.optimizer == "adamw" else {})
        return {
            f"{name}.{moment}": value
            for moment, values in moments.items()
            for name, value in zip(self.trained, values, strict=True)
        }

    def _sgd(self, gradients: list[Tensor], lr: float) -> None:
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

    def _adamw(self, gradients: list[Tensor], lr: float) -> None:
        torch._foreach_add_(self.steps, 1)
        torch._fused_adamw_(
            self.parameters,
            gradients,
            self.moments["mean"],
            self.moments["square"],
            [],
            self.steps,
            lr=lr,
            beta1=BETA1,
            beta2=BETA2,
            weight_decay=self.trial.weight_decay,
            eps=EPS,
            amsgrad=False,
            maximize=False,
        )
