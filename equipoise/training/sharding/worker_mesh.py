"""Place of a worker among replicas of the model and their parts."""

from dataclasses import dataclass

from equipoise.registries.sharding_registry import ShardingMethod, require_divisible_workers


@dataclass(frozen=True, kw_only=True)
class WorkerMesh:
    """Workers as a table: a row for each replica of the model, a column for each part of it.

    The workers of a replica follow each other, so that they share a machine wherever it has that many.
    """

    rank: int
    workers: int
    num_parts: int = 1
    """workers that hold the parts of one replica"""
    shares_examples: bool = False
    """whether the workers of a replica compute parts of the same examples"""

    counting_part: int = 0
    """part whose losses and metrics count, where parts compute the same examples"""

    @property
    def num_replicas(self) -> int:
        """Number of replicas of the model."""
        return self.workers // self.num_parts

    @property
    def replica(self) -> int:
        """Index of the replica that this worker holds a part of."""
        return self.rank // self.num_parts

    @property
    def part(self) -> int:
        """Index of the part that this worker holds."""
        return self.rank % self.num_parts

    @property
    def data_rank(self) -> int:
        """Index of this worker among those that compute examples of their own."""
        return self.replica if self.shares_examples else self.rank

    @property
    def data_workers(self) -> int:
        """Number of workers, or groups of them, that compute examples of their own."""
        return self.num_replicas if self.shares_examples else self.workers

    @property
    def counts_results(self) -> bool:
        """Whether the losses and metrics of this worker count, of those that compute the same examples."""
        return not self.shares_examples or self.part == self.counting_part


def build_worker_mesh(sharding: ShardingMethod, rank: int, workers: int) -> WorkerMesh:
    """Return the place of a process; one process alone holds the whole model, whatever the options divide."""
    if workers == 1 or sharding.kind in ("none", "optimizer"):
        return WorkerMesh(rank=rank, workers=workers)
    require_divisible_workers(sharding, workers)
    num_parts = sharding.group_size or workers
    return WorkerMesh(
        rank=rank,
        workers=workers,
        num_parts=num_parts,
        shares_examples=sharding.splits_layers,
        counting_part=num_parts - 1 if sharding.kind == "pipeline" else 0,  # the last stage has the outputs
    )
