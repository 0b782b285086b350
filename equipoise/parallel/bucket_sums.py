"""Sums of the gradient buckets of a run, each by an algorithm of its own."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.parallel.build_schedule import build_schedule
from equipoise.parallel.node_groups import gather_group_size
from equipoise.parallel.schedule import Schedule
from equipoise.parallel.scheduled_sum import ScheduledSum, scratch_bytes
from equipoise.registries.all_reduce_registry import AppliedAllReduce


def build_bucket_sums(tensors: Sequence[Tensor], algorithms: Sequence[AppliedAllReduce]) -> list[ScheduledSum | None]:
    """Build the sums of tensors over the default process group; None for those that the backend sums.

    All workers call this with the same sizes and algorithms.
    """
    require_usable_backend(tensors[0].device)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group_size = gather_group_size(tensors[0].device) if "two-level" in algorithms else None
    schedules: list[Schedule | None] = [
        None if algorithm == "backend" else build_schedule(algorithm, rank, ranks, tensor.numel(), group_size)
        for tensor, algorithm in zip(tensors, algorithms, strict=True)
    ]
    sizes = [scratch_bytes(s, tensor) for s, tensor in zip(schedules, tensors, strict=True) if s is not None]
    scratch = tensors[0].new_empty(max(sizes, default=0), dtype=torch.uint8)
    return [
        None if schedule is None else ScheduledSum(schedule, tensor, rank, scratch)
        for schedule, tensor in zip(schedules, tensors, strict=True)
    ]


def require_usable_backend(device: torch.device) -> None:
    """Refuse tensors on a GPU where the process group sends from main memory only."""
    if device.type == "cuda" and "nccl" not in dist.get_backend():
        raise EquipoiseError(
            "all-reduce-unusable",
            f"cannot sum gradients on a GPU by messages of {dist.get_backend()}: it sends from main memory only",
            "use NCCL, or --all-reduce backend",
        )
