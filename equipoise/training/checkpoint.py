"""Training state as named tensors, for file formats that keep neither memory layouts nor Python objects."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

from equipoise.training.best_weights import BestWeights
from equipoise.training.torch_state import collect_weights, load_weights

EXCHANGE_PARTS = "compression", "outer"
ERRORS_PART = "error"  # of names by equipoise.compression.kept_errors, which exact sums do not import


class SavedOptimizer(Protocol):
    """Optimizer whose state is part of a checkpoint, wherever it is kept."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of each parameter as PARAMETER.KEY."""

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`; the model has its weights already."""


def collect_training_state(
    model: nn.Module,
    optimizer: SavedOptimizer,
    best_weights: BestWeights | None,
    exchange_state: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint by name.

    Weights are `model.NAME`, the optimizer's state `optimizer.NAME.KEY`, best weights `best.NAME`, what compression
    keeps from step to step on all processes `compression.KEY.NAME`, and the momentum of an outer step `outer.NAME`.
    """
    named = {f"model.{name}": value for name, value in collect_weights(model).items()}
    named |= {f"optimizer.{name}": value for name, value in optimizer.state_dict().items()}
    if best_weights:
        named |= {f"best.{name}": value for name, value in best_weights.tensors.items()}
    for part, tensors in exchange_state.items():
        named |= {f"{part}.{name}": value for name, value in tensors.items()}
    return move_to_cpu(named)


def move_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a file can hold them."""
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def load_training_state(
    model: nn.Module, optimizer: SavedOptimizer, best_weights: BestWeights | None, tensors: Mapping[str, Tensor]
) -> dict[str, dict[str, Tensor]]:
    """Load the tensors of `collect_training_state` into their places, and return the parts of the exchange.

    What compression left out is passed over: perhaps it is that of other processes.
    """
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in ("model", "optimizer", "best", *EXCHANGE_PARTS)}
    for name in tensors:
        kind, _, rest = name.partition(".")
        if kind != ERRORS_PART:
            parts[kind][rest] = tensors[name]
    load_weights(model, parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    if best_weights:
        best_weights.tensors = parts["best"]
    return {part: parts[part] for part in EXCHANGE_PARTS}
