"""Training state as named tensors, for file formats that keep neither memory layouts nor Python objects.

Weights are `model.NAME`, the optimizer's state `optimizer.NAME.KEY`, best weights `best.NAME`, their average over
steps `average.NAME`, what compression keeps from step to step on all processes `compression.KEY.NAME`, and the momentum
of an outer step `outer.NAME`.
"""

from collections.abc import Iterable, Mapping

from torch import Tensor

from equipoise.optimizers.saved_optimizer import SavedOptimizer
from equipoise.training.best_weights import WeightCopy
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.state_parts import StatePart
from equipoise.training.sharding.tensor_slice import TensorSlice

EXCHANGE_PARTS = "compression", "outer"


def collect_training_state(
    sharded: ShardedModel,
    optimizer: SavedOptimizer,
    copies: Mapping[str, WeightCopy],
    exchange_state: Mapping[str, Mapping[str, Tensor]],
    *,
    is_saved: bool = False,
) -> StatePart:
    """Return all tensors of a checkpoint that this process holds, or with `is_saved` those that it saves."""
    tensors: dict[str, Tensor] = {}
    slices: dict[str, TensorSlice] = {}

    def add(name: str, value: Tensor, weight: str) -> None:
        tensors[name] = value
        place = sharded.find_slice(weight)
        if place is not None and value.shape == place.part_shape:
            slices[name] = place

    weights: dict[str, Mapping[str, Tensor]] = {"model": sharded.list_weights()}
    weights |= {part: copy.tensors for part, copy in copies.items()}
    for part, values in weights.items():
        for name, value in values.items():
            if not is_saved or sharded.is_saved_here(name):
                add(f"{part}.{name}", value, name)
    for name, value in optimizer.state_dict().items():
        weight = name.rpartition(".")[0]
        if not is_saved or sharded.is_state_saved_here(weight):
            add(f"optimizer.{name}", value, weight)
    if not is_saved or sharded.mesh.rank == 0:
        for part, values in exchange_state.items():
            tensors.update({f"{part}.{name}": value for name, value in values.items()})
    return StatePart(tensors=move_to_cpu(tensors), slices=slices)


def move_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a file can hold them."""
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def load_training_state(
    sharded: ShardedModel, optimizer: SavedOptimizer, copies: Mapping[str, WeightCopy], tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """Load this process's parts of the whole tensors of a checkpoint, and return the parts of the exchange.

    What compression left out is passed over: perhaps it is that of other processes.
    """
    names: dict[str, list[str]] = {part: [] for part in ("model", "optimizer", *EXCHANGE_PARTS)}
    for name in tensors:
        part, _, rest = name.partition(".")
        if part in names:
            names[part].append(rest)
    sharded.load_weights(select_part(tensors, "model", names["model"]))
    moments = {
        name: cut_part(sharded, name.rpartition(".")[0], tensors[f"optimizer.{name}"])
        for name in names["optimizer"]
        if sharded.holds_state(name.rpartition(".")[0])
    }
    optimizer.load_state_dict(moments)
    for part, copy in copies.items():
        held = [name for name in sharded.list_weights() if f"{part}.{name}" in tensors]
        copy.load({name: cut_part(sharded, name, tensors[f"{part}.{name}"]) for name in held})
    return {part: select_part(tensors, part, names[part]) for part in EXCHANGE_PARTS}


def select_part(tensors: Mapping[str, Tensor], part: str, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of a part of a checkpoint by their names in it."""
    return {name: tensors[f"{part}.{name}"] for name in names}


def cut_part(sharded: ShardedModel, weight: str, value: Tensor) -> Tensor:
    """Return what this process holds of a whole tensor that belongs to a weight."""
    place = sharded.find_slice(weight)
    return place.cut(value) if place is not None and value.shape == place.shape else value
