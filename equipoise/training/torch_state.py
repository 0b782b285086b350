"""State of torch: denormals of a thread, the generator of dropout, and the weights of a model."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Treat numbers near the smallest of their dtype as zero, in this thread.

    The momentum of a unit that no longer learns decays to such numbers and stays there, and a CPU
    computes with them in microcode: 3 % of LeNet's step.
    """
    before = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def get_dropout_generator(device: torch.device) -> torch.Generator:
    """Return the generator that dropout draws from on `device`."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator


def collect_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights and buffers of a model by name; a tensor that has two names (tied weights) under its first.

    File formats without references, such as safetensors, take no tensor twice.
    """
    names_by_tensor: dict[int, str] = {}
    tensors = model.state_dict(keep_vars=True)
    for name, tensor in tensors.items():
        names_by_tensor.setdefault(id(tensor), name)
    return {name: tensors[name].detach() for name in names_by_tensor.values()}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `collect_weights` into a model of the same kind."""
    tied_names = set(model.state_dict()) - set(collect_weights(model))
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or not set(missing) <= tied_names:
        model.load_state_dict(tensors)  # raises the error that names them
