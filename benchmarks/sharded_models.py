"""Models whose steps are timed under each kind of --sharding."""

import time
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import nn

from benchmarks.memory import build_workload, mlp
from equipoise.config import TrainConfig
from equipoise.workloads import Split, Workload
from equipoise.workloads.text.gpt import GPT

VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS = 65, 64, 4, 128, 4
MLP_WIDTH, SLEEPING_WIDTH = 1024, 768
SECONDS_PER_WEIGHT = 1e-8  # of a forward pass of a sleeping layer
BUBBLE_SLOWDOWN = 10.0


def gpt(config: TrainConfig | None = None) -> Workload:
    """GPT of 4 layers of width 128, on tokens of noise."""

    def build_split(count: int) -> Split:
        tokens = torch.randint(0, VOCABULARY, (count, CONTEXT + 1))
        return Split(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    train, other = build_split(256), build_split(4)
    return replace(
        build_workload("gpt", (1,), lambda: GPT(VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS)),
        train=train,
        validation=other,
        reference=other,
        test=other,
        loss=lambda scores, targets: nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()),
        metric=lambda scores, targets: (scores.argmax(2) == targets).float().mean(1),
        classes=[],
    )


class SleepingPass(torch.autograd.Function):
    """Sleep in both passes, as long as a processor of their own would take."""

    slowdown: ClassVar[float] = 1.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
        """Sleep, and return the values as they are."""
        ctx.seconds = 2 * SleepingPass.slowdown * seconds
        time.sleep(SleepingPass.slowdown * seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sleep twice as long, and return the gradients as they are."""
        time.sleep(ctx.seconds)
        return gradients[0], None


def sleeping_mlp(config: TrainConfig | None = None) -> Workload:
    """MLP whose layers sleep, once `pause_layers` was called: workers that share no processors, as on a cluster."""

    def build_model() -> nn.Module:
        layers = [nn.Linear(SLEEPING_WIDTH, SLEEPING_WIDTH) for _ in range(4)]  # two or four equal stages
        return nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))

    return build_workload("sleeping_mlp", (SLEEPING_WIDTH,), build_model)


def pause_layers(config: TrainConfig, model: nn.Module) -> None:
    """Let the layers of a run that sleeps do so, in proportion to the weights that this worker computes with."""
    if config.workload.endswith(":sleeping_mlp"):
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(
                    lambda module, _, output: SleepingPass.apply(output, SECONDS_PER_WEIGHT * module.weight.numel())
                )


MODELS = {"gpt": (gpt, 4), "mlp": (mlp, 32), "sleeping_mlp": (sleeping_mlp, 8)}
"""workload and batch size of a micro-batch"""
