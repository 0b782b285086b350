"""Groups of processes of a pipeline; all processes build all of them in the same order."""

from collections.abc import Sequence
from typing import NamedTuple

import torch.distributed as dist

from equipoise.training.sharding.worker_mesh import WorkerMesh


class StageGroups(NamedTuple):
    """Groups of processes that a stage belongs to."""

    values: dist.ProcessGroup
    """workers of the replica, for values on their way forward and for sums over stages"""
    gradients: dist.ProcessGroup
    """the same workers, for gradients on their way back: on a GPU a group's messages wait for each other"""
    replicas: dist.ProcessGroup | None
    """workers that hold the same stage, of each replica; None if there is one replica"""


def build_stage_groups(mesh: WorkerMesh) -> StageGroups:
    """Build the groups of this process."""
    rows = [list_workers(mesh, replica, range(mesh.num_parts)) for replica in range(mesh.num_replicas)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    values, gradients = (build_own_group(rows) for _ in range(2))
    return StageGroups(values, gradients, build_own_group(columns) if mesh.num_replicas > 1 else None)  # type: ignore[arg-type]  # every process is in a row


def build_holder_group(mesh: WorkerMesh, stages: Sequence[int]) -> dist.ProcessGroup | None:
    """Build the group of each replica's workers that hold these stages; return this process's own, if it is in one."""
    return build_own_group([list_workers(mesh, replica, stages) for replica in range(mesh.num_replicas)])


def list_workers(mesh: WorkerMesh, replica: int, stages: Sequence[int]) -> list[int]:
    """Return the ranks of the workers of a replica that hold these stages."""
    return [replica * mesh.num_parts + stage for stage in stages]


def build_own_group(rows: list[list[int]]) -> dist.ProcessGroup | None:
    """Build a group of each of these ranks, and return the one that this process is in."""
    own: dist.ProcessGroup | None = None
    for ranks in rows:
        group = dist.new_group(ranks)
        if isinstance(group, dist.ProcessGroup):  # in others, processes get a number
            own = group
    return own
