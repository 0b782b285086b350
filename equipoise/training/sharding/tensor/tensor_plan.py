"""Which layers of a model are divided among workers and how, told from its structure."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_share, pluralize
from equipoise.training.sharding.tensor.divisible_blocks import DivisibleBlock, find_blocks
from equipoise.training.sharding.tensor.layer_division import LayerDivision, divide_layer
from equipoise.training.sharding.tensor.part_exchange import PartExchange
from equipoise.training.sharding.tensor_slice import TensorSlice


@dataclass(frozen=True, kw_only=True)
class TensorPlan:
    """Layers of which each worker of a replica holds a part; all other layers are whole on each worker."""

    num_parts: int
    layers: tuple[LayerDivision, ...]
    counters: tuple[str, ...]
    """attributes of modules, by their names in the model, that count what each worker has a part of"""
    num_weighted: int
    """number of the layers that have weights"""
    share: float
    """share of the model's weights that is divided"""

    def describe(self) -> str:
        """Return what is divided, for people."""
        layers = pluralize(self.num_weighted, "layer")
        return f"dividing {layers} with {format_share(self.share)} of the weights over {self.num_parts} workers"


def plan_tensor_sharding(model: nn.Module, num_parts: int) -> TensorPlan:
    """Return which layers of a whole model are divided among so many workers; refuse one in which nothing can be."""
    blocks = sorted(find_blocks(model), key=lambda block: count_weights(model, block.layers), reverse=True)
    chosen: list[DivisibleBlock] = []
    taken: set[str] = set()
    for block in blocks:
        names = {layer.name for layer in block.layers}
        if not block.width % num_parts and not names & taken:
            chosen.append(block)
            taken |= names
    if not chosen:
        raise explain_refusal(blocks, num_parts)
    layers = tuple(layer for block in chosen for layer in block.layers)
    total = sum(parameter.numel() for parameter in model.parameters())
    return TensorPlan(
        num_parts=num_parts,
        layers=layers,
        counters=tuple(counter for block in chosen for counter in block.counters),
        num_weighted=sum(layer.kind not in ("input", "dropout") for layer in layers),
        share=count_weights(model, layers) / total,
    )


def divide_model(model: nn.Module, plan: TensorPlan, exchange: PartExchange) -> dict[str, TensorSlice]:
    """Let the layers of a whole model hold and compute one part; return the parts of its divided weights by name."""
    slices_by_name: dict[str, TensorSlice] = {}
    for division in plan.layers:
        slices = divide_layer(model.get_submodule(division.name), division, exchange)
        slices_by_name |= {f"{division.name}.{name}": place for name, place in slices.items()}
    for counter in plan.counters:
        owner, _, attribute = counter.rpartition(".")
        module = model.get_submodule(owner)
        setattr(module, attribute, getattr(module, attribute) // plan.num_parts)
    return slices_by_name


def count_weights(model: nn.Module, layers: Iterable[LayerDivision]) -> int:
    """Return the number of weights that workers divide in layers of a whole model."""
    return sum(
        layer.get_parameter(name).numel()
        for division in layers
        for layer in [model.get_submodule(division.name)]
        for name in division.find_slices(layer, 0, 1)
    )


def explain_refusal(blocks: list[DivisibleBlock], num_parts: int) -> EquipoiseError:
    """Return the refusal of a model of which no block can be divided; the largest comes first."""
    option = f"--sharding tensor:{num_parts}"
    if not blocks:
        return EquipoiseError(
            "sharding-unusable",
            f"cannot divide the model's layers for {option}: it has no convolution, no pair of dense layers with only"
            " elementwise functions between them, and no known block of a language model",
            "choose --sharding full, which divides any model",
        )
    largest = blocks[0]
    return EquipoiseError(
        "sharding-unusable",
        f"cannot divide the model's layers for {option}: the largest, {largest.layers[0].name}, has"
        f" {largest.width} {largest.unit}, which {num_parts} workers cannot share equally, nor any other layer's",
        f"choose a K that divides {largest.width}, or --sharding full",
    )
