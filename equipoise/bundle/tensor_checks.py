"""Comparison of tensors with what a bundle declares, and trial of its program on zeros."""

from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.bundle.tensor_spec import OPEN_SIZE, TensorSpec
from equipoise.errors import EquipoiseError

PROBE_LENGTH = 2  # of open dimensions other than the first, where a program is tried out


def make_zeros(spec: TensorSpec, count: int) -> Tensor:
    """Return a tensor of zeros for `count` examples."""
    return torch.zeros(fill_shape(spec, count), dtype=getattr(torch, spec.dtype))


def fill_shape(spec: TensorSpec, count: int) -> tuple[int, ...]:
    """Return the shape for `count` examples, `PROBE_LENGTH` long where it is open otherwise."""
    return count, *(PROBE_LENGTH if size == OPEN_SIZE else size for size in spec.shape[1:])


def describe_tensor(name: str, tensor: Tensor, open_dimensions: Sequence[int] = (0,)) -> TensorSpec:
    """Return the specification of tensors like this one, whose sizes may differ in the open dimensions."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ("uint8", "int64", "float32"):
        raise EquipoiseError(
            "export-failed",
            f"cannot publish the model: its tensor {name} is of type {dtype}",
            "let it take and return float32, int64 or uint8",
        )
    shape = tuple(OPEN_SIZE if index in open_dimensions else size for index, size in enumerate(tensor.shape))
    return TensorSpec(name=name, dtype=dtype, shape=shape)  # type: ignore[arg-type]  # one of the three


def require_probe_outputs(outputs: Sequence[object], specs: Sequence[TensorSpec], count: int) -> None:
    """Refuse what a program returns for `count` examples of zeros unless it is finite and as declared."""
    if len(outputs) != len(specs):
        raise EquipoiseError("bundle-invalid", f"it returns {len(outputs)} tensors instead of {len(specs)}")
    for spec, output in zip(specs, outputs, strict=True):
        shape = fill_shape(spec, count)
        if not isinstance(output, Tensor) or str(output.dtype) != f"torch.{spec.dtype}" or output.shape != shape:
            actual = f"{output.dtype} {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise EquipoiseError("bundle-invalid", f"for {count} examples it returns {actual} instead of {spec}")
        if not torch.isfinite(output).all():
            raise EquipoiseError("bundle-invalid", f"its {spec.name} are not all finite")
