"""Training state as named tensors, for file formats that keep neither memory layouts nor Python objects."""

from collections.abc import Mapping

from torch import Tensor, nn

from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.best_weights import BestWeights
from equipoise.training.torch_state import collect_weights, load_weights


def collect_training_state(
    model: nn.Module,
    optimizer: RunOptimizer,
    best_weights: BestWeights | None,
    sync_state: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return all tensors of a checkpoint by name.

    Weights are `model.NAME`, the optimizer's state `optimizer.NAME.KEY`, best weights `best.NAME`, and what compression
    keeps from step to step `compression.KEY.NAME`.
    """
    named = {f"model.{name}": value for name, value in collect_weights(model).items()}
    named |= {f"optimizer.{name}": value for name, value in optimizer.state_dict().items()}
    if best_weights:
        named |= {f"best.{name}": value for name, value in best_weights.tensors.items()}
    named |= {f"compression.{name}": value for name, value in sync_state.items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def load_training_state(
    model: nn.Module, optimizer: RunOptimizer, best_weights: BestWeights | None, tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Load the tensors of `collect_training_state` into their places, and return those that compression keeps."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}, "compression": {}}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = value
    load_weights(model, parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    if best_weights:
        best_weights.tensors = parts["best"]
    return parts["compression"]
