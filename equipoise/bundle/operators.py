"""Operators that a bundle's program may run: arithmetic on tensors and on sizes, by name.

None of them opens a file, reads uninitialized memory or exposes the internals of a kernel, and all check their
arguments: the kernels that do not are called through `CHECKED_OPERATORS`.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from equipoise.bundle.operator_checks import CHECKED_OPERATORS
from equipoise.errors import EquipoiseError

SIZE_ARITHMETIC = {name: getattr(operator, name) for name in ("getitem", "add", "sub", "mul", "floordiv", "mod", "neg")}
MAX_COMPUTED_SIZE = 1 << 40  # largest result of a program's arithmetic on sizes
OPERATOR_NAMES_TEXT = """
    __and__ __or__ __xor__ abs adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d add addmm alias amax amin
    arange argmax avg_pool1d avg_pool2d baddbmm batch_norm bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil
    celu chunk clamp clamp_max clamp_min clone col2im concat constant_pad_nd contiguous conv1d conv2d conv3d cos cumsum
    detach diff div dropout einsum elu embedding embedding_bag eq erf exp expand expand_as eye feature_dropout fill
    flatten flip floor floor_divide full full_like gather ge gelu glu group_norm gt hardsigmoid hardswish hardtanh
    im2col index index_select instance_norm layer_norm le leaky_relu lift_fresh_copy linalg_vector_norm linear log
    log_softmax logical_and logical_not logical_or logical_xor lt masked_fill matmul max max_pool1d max_pool2d maximum
    mean min minimum mish mm movedim mul narrow ne neg new_full new_ones new_zeros norm numpy_T ones ones_like pad
    permute pixel_shuffle pixel_unshuffle pow prelu prod reciprocal relu relu6 remainder repeat repeat_interleave
    reshape reshape_as rms_norm roll round rsqrt rsub select selu sigmoid silu sin slice softmax softplus split
    split_with_sizes sqrt square squeeze stack std sub sum swapaxes sym_numel sym_size t tanh tile to topk transpose
    tril triu type_as unbind unflatten unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_nearest2d var view
    view_as where zero zeros zeros_like
"""
ALLOWED_OPERATORS = frozenset(OPERATOR_NAMES_TEXT.split())
"""names of ATen operators without the underscore of in-place variants, allowed with all overloads"""
ALLOWED_OVERLOADS = frozenset({"gru.input", "rnn_relu.input", "rnn_tanh.input", *CHECKED_OPERATORS})
"""operators that are allowed with one overload only; the others take lengths that a kernel does not check"""


def find_operator_name(target: Any) -> str | None:
    """Return an operator as NAME.OVERLOAD, or as a key of `SIZE_ARITHMETIC`; None if it is not allowed."""
    if isinstance(target, torch._ops.OpOverload):
        name = f"{target._opname}.{target._overloadname}"
        return name if target.namespace == "aten" and is_allowed_operator(name) else None
    return next((name for name, function in SIZE_ARITHMETIC.items() if target is function), None)


def is_allowed_operator(name: str) -> bool:
    """Return whether a program may run the ATen operator NAME.OVERLOAD."""
    base = name.partition(".")[0]
    return name in ALLOWED_OVERLOADS or base in ALLOWED_OPERATORS or base.removesuffix("_") in ALLOWED_OPERATORS


def lookup_operator(name: str) -> Callable[..., Any]:
    """Return the allowed operator with a name from a bundle's program."""
    if name in SIZE_ARITHMETIC:
        return partial(apply_size_arithmetic, name)
    if not is_allowed_operator(name):
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: the operator {name!r} is not allowed in this version"
        )
    if name in CHECKED_OPERATORS:
        return CHECKED_OPERATORS[name]
    base, _, overload = name.partition(".")
    overloaded: Any = getattr(getattr(torch.ops.aten, base), overload)
    if not isinstance(overloaded, torch._ops.OpOverload):
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: there is no operator {name!r} in PyTorch"
        )
    return overloaded


def apply_size_arithmetic(name: str, *values: Any) -> Any:
    """Compute with sizes, bounded by `MAX_COMPUTED_SIZE`; `getitem` selects one of several results."""
    if name == "getitem":
        results, index = values
        if not isinstance(results, list | tuple) or not isinstance(index, int):
            raise EquipoiseError(
                "bundle-invalid",
                "cannot run the bundle's program: getitem needs a list of results and an integer index",
            )
        return results[index]
    if not all(isinstance(value, int | float) for value in values):
        raise EquipoiseError("bundle-invalid", f"cannot run the bundle's program: {name} needs numbers")
    result = SIZE_ARITHMETIC[name](*values)
    if abs(result) > MAX_COMPUTED_SIZE:
        raise EquipoiseError(
            "bundle-invalid", f"cannot run the bundle's program: it computes a size above {MAX_COMPUTED_SIZE}"
        )
    return result
