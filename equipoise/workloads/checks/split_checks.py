"""Checks of a workload's splits: that their examples can be read in any order, and are finite numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.batch import count_examples, list_tensors
from equipoise.workloads.checks.image_checks import check_image_split
from equipoise.workloads.image_workload import ImageWorkload

STREAM_REMEDY = (
    "give a data set with __len__ and __getitem__: the examples of a step must not depend on the number of workers, and"
    " a stream has no example by its number"
)


def check_split(description: str, split: object, workload: Workload) -> None:
    """Refuse a split without examples, with parts of different lengths or numbers that are not finite, or a stream."""
    split = require_random_access(description, split)
    require_targets(description, split)
    if not len(split):
        raise EquipoiseError("workload-invalid", f"{description} is empty", "every split needs at least one example")
    if isinstance(workload, ImageWorkload):
        check_image_split(description, split, len(workload.classes))
    lengths = {"targets": len(split), "inputs": len(split) if split.targets is None else len_of_inputs(split)}
    if lengths["inputs"] != lengths["targets"]:
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has {lengths['inputs']} inputs and {lengths['targets']} targets",
            "give one target for each input",
        )
    if split.is_in_memory:
        for kind, batch in (("inputs", split.inputs), ("targets", split.targets)):
            for tensor in list_tensors(batch):
                check_rows(f"{description} has {kind}", tensor, len(split))


def require_random_access(description: str, split: object) -> Split:
    """Return a split whose examples can be read in any order; refuse anything else."""
    if not isinstance(split, Split):
        raise EquipoiseError(
            "workload-invalid", f"{description} is a {type(split).__name__}", "give a Split of inputs and targets"
        )
    inputs = split.inputs
    has_places = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
    if isinstance(inputs, IterableDataset) or not (split.is_in_memory or has_places):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} is a {type(inputs).__name__}, which cannot be read at any place",
            STREAM_REMEDY,
        )
    return split


def require_targets(description: str, split: Split) -> None:
    """Refuse a split in memory without targets, and targets of which no batch can be taken."""
    if split.targets is None:
        if isinstance(split.inputs, Tensor | tuple | Mapping):
            raise EquipoiseError(
                "workload-invalid",
                f"{description} has inputs in a {type(split.inputs).__name__} and no targets",
                "give targets, or a data set that returns pairs of inputs and targets",
            )
    elif not isinstance(split.targets, Tensor | list) and not list_tensors(split.targets):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} has targets in a {type(split.targets).__name__}",
            "give a tensor such as torch.from_numpy makes it, a tuple or dict of tensors, or a list",
        )


def len_of_inputs(split: Split) -> int:
    """Return the number of inputs of a split that has targets beside them."""
    return count_examples(split.inputs) if split.is_in_memory else len(split.inputs)


def check_rows(description: str, tensor: Tensor, count: int) -> None:
    """Refuse a tensor without one row for each example, or with a number that is not finite."""
    if tensor.ndim == 0 or (len(tensor) != count):
        raise EquipoiseError(
            "workload-invalid",
            f"{description} as a tensor of {tuple(tensor.shape)}",
            f"its first dimension must be the {count} examples",
        )
    if tensor.requires_grad or tensor.layout != torch.strided:
        found = "with a gradient" if tensor.requires_grad else f"in the layout {tensor.layout}"
        raise EquipoiseError("workload-invalid", f"{description} {found}", "call detach() or to_dense() on them")
    if tensor.is_floating_point() and not (finite := tensor.isfinite().flatten(1 - (tensor.ndim == 1))).all():
        row = int(torch.nonzero(~finite)[0, 0])
        raise EquipoiseError(
            "workload-invalid",
            f"{description} that are not finite numbers: the first is in example {row}",
            "replace or leave out such examples",
        )
