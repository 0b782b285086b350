"""Blocks of layers that keep only their inputs for the backward pass, which computes them again (--recompute).

Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016, by torch.utils.checkpoint: dropout draws the same
units again, so that gradients are those of a run that keeps everything, to the bit.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
MIN_BLOCKS = 2  # the backward pass of a single one would hold all of its activations at once, as without


class RecomputedBlock(nn.Module):
    """Block whose class has become one of these, so that it stays the module that it was."""

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Compute the outputs; for a backward pass keep only the inputs."""
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*inputs, **named_inputs)
        contexts = partial(build_contexts, self)
        return checkpoint(super().forward, *inputs, use_reentrant=False, context_fn=contexts, **named_inputs)


def recompute_blocks(config: TrainConfig, model: nn.Module) -> None:
    """Let a model's blocks be computed again in the backward pass."""
    if config.compile:
        raise EquipoiseError(
            "option-conflict",
            "cannot use --recompute with --compile, which itself decides what is computed again",
            "omit one of the two",
        )
    blocks = list_blocks(model)
    if len(blocks) < MIN_BLOCKS:
        raise EquipoiseError(
            "model-invalid",
            f"cannot use --recompute: the model has {len(blocks) or 'no'} block of several layers, and it saves memory"
            f" only from {MIN_BLOCKS} on",
            "omit --recompute, or choose a model of repeated blocks",
        )
    for block in blocks:
        base = type(block)
        block.__class__ = type(base.__name__, (RecomputedBlock, base), {})


def list_blocks(model: nn.Module) -> list[nn.Module]:
    """List the largest modules of several layers that repeat: members of containers, or else those of the model."""
    blocks: list[nn.Module] = []
    for child in model.children():
        if not any(True for _ in child.children()):
            continue  # a single layer keeps little besides its input
        if isinstance(model, CONTAINERS) and not isinstance(child, CONTAINERS):
            blocks.append(child)
        elif inner := list_blocks(child):
            blocks += inner
        elif not isinstance(child, nn.ModuleList | nn.ModuleDict):  # which are never called
            blocks.append(child)
    return blocks


def build_contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return the contexts in which a block is computed for the first and the second time."""
    return nullcontext(), keep_statistics(block)


@contextmanager
def keep_statistics(block: nn.Module) -> Iterator[None]:
    """Leave running statistics as they are: they have seen this batch."""
    norms = [module for module in block.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
