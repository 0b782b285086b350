"""Bytes of the tensors that objects hold, found through their attributes, items, closures and hooks."""

from collections.abc import Iterable, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

PLAIN_TYPES = (str, bytes, int, float, complex, bool, type(None), type, ModuleType, torch.dtype, torch.device)


def count_live_bytes(*roots: object, without: tuple[type, ...] = ()) -> int:
    """Return the bytes of all tensors that `roots` hold and of their gradients, each storage once; shapes take none.

    Objects of the types in `without` are passed over, with all that only they hold.
    """
    bytes_by_address: dict[int, int] = {}
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, PLAIN_TYPES + without):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor) and not value.is_meta and not hasattr(value, "_local_tensor"):
            storage = value.untyped_storage()
            bytes_by_address[storage.data_ptr()] = storage.nbytes()
        waiting.extend(list_held_values(value))
    return sum(bytes_by_address.values())


def list_held_values(value: Any) -> Iterable[Any]:
    """Return what an object holds; of a function what it has from outside, but not the names of its module."""
    if isinstance(value, Tensor):
        part = getattr(value, "_local_tensor", None)  # of a tensor that workers hold parts of
        return [part, value.grad if value.is_leaf else None]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()] if isinstance(value, dict) else []
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if has_value(cell)]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    return getattr(value, "__dict__", {}).values()


def has_value(cell: CellType) -> bool:
    """Return whether the variable of a closure has a value yet."""
    try:
        cell.cell_contents  # noqa: B018  # raises without one
    except ValueError:
        return False
    return True
