"""A training's state as named tensors, for files that keep no layout and no Python objects."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Weights and buffers as `model.NAME`, the optimizer's moments as `optimizer.INDEX.NAME`."""
    named = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        named |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def load(model: nn.Module, optimizer: Optimizer, named: dict[str, Tensor]) -> None:
    """Bring both to the state that `tensors` told."""
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    weights: dict[str, Tensor] = {}
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in named.items():
        kind, _, rest = name.partition(".")
        if kind == "model":
            weights[rest] = value
        else:
            index, _, moment = rest.partition(".")
            moments.setdefault(int(index), {})[moment] = laid_out(value, trained[int(index)])
    model.load_state_dict(weights)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})


def laid_out(moment: Tensor, parameter: Tensor) -> Tensor:
    """A moment in its parameter's layout: fused optimizers walk both in the order of memory."""
    return torch.empty_like(parameter).copy_(moment) if moment.shape == parameter.shape else moment
