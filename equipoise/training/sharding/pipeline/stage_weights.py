"""Weights and buffers of a model by the stages of a pipeline that hold them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from equipoise.training.sharding.pipeline.model_trace import ModelTrace
from equipoise.training.sharding.pipeline.stage_cut import StageBoundary, find_weight_holders


class WeightPlace(NamedTuple):
    """Weight or buffer of the whole model, and where it is."""

    aliases: tuple[str, ...]
    """its names, the first of which stands for it"""
    holders: tuple[int, ...]
    """stages that use it; the first of them saves it"""


def place_weights(model: nn.Module, trace: ModelTrace, boundaries: Sequence[StageBoundary]) -> dict[str, WeightPlace]:
    """Return where each weight and buffer of a model is, by its first name."""
    aliases: dict[int, list[str]] = {}
    for name, tensor in iterate_tensors(model):
        aliases.setdefault(id(tensor), []).append(name)
    holders = find_weight_holders(trace, boundaries, list(aliases.values()))
    return {
        names[0]: WeightPlace(tuple(names), stages) for names, stages in zip(aliases.values(), holders, strict=True)
    }


def iterate_tensors(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """Yield the weights and buffers of a model under all of their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def release_tensor(model: nn.Module, path: str) -> None:
    """Free the memory of a weight or buffer of a model, whose name and shape stay."""
    parent, _, name = path.rpartition(".")
    module = model.get_submodule(parent)
    value: Tensor = getattr(module, name)
    empty = torch.empty_like(value, device="meta")
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, nn.Parameter(empty, value.requires_grad))
    else:
        module.register_buffer(name, empty, persistent=name not in module._non_persistent_buffers_set)
