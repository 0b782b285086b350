"""Refuse parameters whose gradients a compression cannot send, before training."""

from collections.abc import Mapping

from torch import Tensor, nn

from equipoise.compression.low_rank_sum import uses_low_rank
from equipoise.errors import EquipoiseError


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
    name = max(matrices, key=lambda name: find_largest_rank(matrices[name]))
    largest = find_largest_rank(matrices[name])
    raise EquipoiseError(
        "compression-unusable",
        f"cannot send gradients by powersgd:{rank}: not even {name} of shape {tuple(matrices[name].shape)} would take"
        " fewer numbers",
        f"use --compression powersgd:{largest} or a lower rank" if largest else "use --compression bf16 or int8",
    )


def find_largest_rank(tensor: Tensor) -> int:
    """Return the largest rank at which a matrix is sent in fewer numbers; 0 if there is none."""
    rows, columns = len(tensor), tensor.numel() // max(1, len(tensor))
    return max(0, (rows * columns - 1) // (rows + columns)) if rows * columns else 0
