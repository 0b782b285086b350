"""Training state as named tensors, for file formats that keep neither memory layouts nor Python objects."""

from torch import Tensor, nn

from equipoise.training.optimizers import FusedOptimizer


def collect_training_state(model: nn.Module, optimizer: FusedOptimizer) -> dict[str, Tensor]:
    """Return weights and buffers as `model.NAME` and the optimizer's moments as `optimizer.NAME.MOMENT`."""
    named = {f"model.{name}": value for name, value in model.state_dict().items()}
    named |= {f"optimizer.{name}": value for name, value in optimizer.state_dict().items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def load_training_state(model: nn.Module, optimizer: FusedOptimizer, tensors: dict[str, Tensor]) -> None:
    """Load the tensors of `collect_training_state` into the model and the optimizer."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = value
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
