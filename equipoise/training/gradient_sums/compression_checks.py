"""Refuse parameters whose gradients a compression cannot send, before training, and say which go exact."""

from collections.abc import Mapping

from torch import Tensor, nn

from equipoise.compression.low_rank_sum import uses_low_rank
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.compression_cost import find_largest_rank
from equipoise.registries.exchange_registry import CompressionMethod

MAX_LISTED_NAMES = 3  # of matrices that go exact


def check_compression(method: CompressionMethod, parameters: Mapping[str, nn.Parameter]) -> str:
    """Refuse parameters whose gradients cannot be compressed, and return a line on those that go exact, or ""."""
    if method.kind == "none":
        return ""
    require_floating(parameters)
    if method.kind != "powersgd":
        return ""
    rank = int(method.amount)
    require_usable_rank(rank, parameters)
    matrices = {name: parameter for name, parameter in parameters.items() if parameter.ndim > 1}
    exact = [f"{name} {tuple(p.shape)}" for name, p in matrices.items() if not uses_low_rank(p, rank)]
    if not exact:
        return ""
    names = ", ".join(exact[:MAX_LISTED_NAMES]) + (", ..." if len(exact) > MAX_LISTED_NAMES else "")
    return (
        f"powersgd:{rank} sums {len(exact)} of the model's {len(matrices)} matrices exactly, where a product of this"
        f" rank would hold no fewer numbers: {names}"
    )


def require_floating(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse parameters that are not real floating-point numbers."""
    for name, parameter in parameters.items():
        if not parameter.is_floating_point():
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise EquipoiseError(
                "compression-unusable",
                f"cannot compress the gradient of {name}: it is {dtype}, not floating-point numbers",
                "use --compression none",
            )


def require_usable_rank(rank: int, parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse a rank at which no gradient would be sent in fewer numbers."""
    if any(uses_low_rank(parameter, rank) for parameter in parameters.values()):
        return
    matrices = {name: parameter for name, parameter in parameters.items() if parameter.ndim > 1}
    if not matrices:
        raise EquipoiseError(
            "compression-unusable",
            "cannot send gradients by powersgd: the model has no matrices, only tensors of one dimension",
            "use --compression bf16 or int8",
        )
    ranks = {name: find_largest_rank(*fold_shape(tensor)) for name, tensor in matrices.items()}
    name = max(ranks, key=lambda name: ranks[name])
    largest = ranks[name]
    raise EquipoiseError(
        "compression-unusable",
        f"cannot send gradients by powersgd:{rank}: not even {name} of shape {tuple(matrices[name].shape)} would take"
        " fewer numbers",
        f"use --compression powersgd:{largest} or a lower rank" if largest else "use --compression bf16 or int8",
    )


def fold_shape(tensor: Tensor) -> tuple[int, int]:
    """Return the rows and columns as which a tensor of two or more dimensions is sent."""
    return len(tensor), tensor.numel() // max(1, len(tensor))
