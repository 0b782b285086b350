"""Training state as named tensors, for file formats that keep neither memory layouts nor Python objects."""

from torch import Tensor, nn

from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.best_weights import BestWeights
from equipoise.training.torch_state import collect_weights, load_weights


def collect_training_state(
    model: nn.Module, optimizer: RunOptimizer, best_weights: BestWeights | None
) -> dict[str, Tensor]:
    """Return weights as `model.NAME`, the optimizer's state as `optimizer.NAME.KEY` and best weights as `best.NAME`."""
    named = {f"model.{name}": value for name, value in collect_weights(model).items()}
    named |= {f"optimizer.{name}": value for name, value in optimizer.state_dict().items()}
    if best_weights:
        named |= {f"best.{name}": value for name, value in best_weights.tensors.items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def load_training_state(
    model: nn.Module, optimizer: RunOptimizer, best_weights: BestWeights | None, tensors: dict[str, Tensor]
) -> None:
    """Load the tensors of `collect_training_state` into the model, the optimizer and the best weights."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "best": {}}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = value
    load_weights(model, parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    if best_weights:
        best_weights.tensors = parts["best"]
