"""Batches of any structure: a tensor, or a tuple, dict or list of them, with one row or item for each example.

A model takes a tensor or a list as its argument, a tuple as its positional arguments, and a dict as its keyword
arguments. Targets have the same structures, and only the loss and the metric look into them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Batch = Any  # Tensor | tuple[Tensor, ...] | dict[str, Tensor] | list[Any]


def map_tensors(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """Return a batch of the same structure with a function applied to each tensor."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: map_tensors(value, function) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        values = [map_tensors(value, function) for value in batch]
        return values if isinstance(batch, list) else tuple(values)
    return batch


def list_tensors(batch: Batch) -> list[Tensor]:
    """List the tensors of a batch."""
    tensors: list[Tensor] = []

    def append(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(batch, append)
    return tensors


def count_examples(batch: Batch) -> int:
    """Return the number of examples of a batch: rows of its first tensor, or items of a list."""
    if isinstance(batch, Mapping):
        return count_examples(next(iter(batch.values())))
    return count_examples(batch[0]) if isinstance(batch, tuple) else len(batch)


def select_examples(batch: Batch, indices: Tensor) -> Batch:
    """Return the examples at `indices` (int64) as a batch of their own."""
    if isinstance(batch, list):
        return [batch[index] for index in indices.tolist()]
    return map_tensors(batch, lambda tensor: tensor.index_select(0, indices.to(tensor.device)))


def split_batch(batch: Batch, size: int) -> Sequence[Batch]:
    """Split a batch into parts of `size` examples; the last one may be smaller."""
    if isinstance(batch, Tensor):
        parts: Sequence[Tensor] = torch.split(batch, size)
        return parts
    starts = range(0, count_examples(batch), size)
    if isinstance(batch, list):
        return [batch[start : start + size] for start in starts]
    return [map_tensors(batch, partial(slice_rows, start=start, size=size)) for start in starts]


def slice_rows(tensor: Tensor, start: int, size: int) -> Tensor:
    """Return `size` rows of a tensor from `start` on."""
    return tensor[start : start + size]


def stack_examples(examples: Sequence[Any]) -> Batch:
    """Stack single examples into a batch: tensors and numbers into tensors, tuples and dicts part by part.

    What cannot be stacked, such as texts, stays a list with one item for each example.
    """
    first = examples[0]
    if isinstance(first, Tensor):
        return torch.stack(list(examples))
    if isinstance(first, np.ndarray | np.generic | int | float):
        return torch.as_tensor(np.stack([np.asarray(example) for example in examples]))
    if isinstance(first, Mapping):
        return {name: stack_examples([example[name] for example in examples]) for name in first}
    if isinstance(first, tuple):
        return tuple(stack_examples(parts) for parts in zip(*examples, strict=True))
    return list(examples)


def call_model(model: nn.Module | Callable[..., Any], inputs: Batch) -> Any:
    """Return the outputs of a model for a batch of inputs."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
