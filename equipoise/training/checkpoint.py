"""A training's state as named tensors, for files that keep no layout and no Python objects."""

from torch import Tensor, nn

from equipoise.training.optimizers import Optimizer


def tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Weights and buffers as `model.NAME`, the optimizer's moments as `optimizer.NAME.MOMENT`."""
    named = {f"model.{name}": value for name, value in model.state_dict().items()}
    named |= {f"optimizer.{name}": value for name, value in optimizer.tensors().items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def load(model: nn.Module, optimizer: Optimizer, named: dict[str, Tensor]) -> None:
    """Bring both to the state that `tensors` told."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, value in named.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = value
    model.load_state_dict(parts["model"])
    optimizer.load(parts["optimizer"])
