"""Algorithms that sum gradients over workers, by name, and the numbers of workers that each can run on.

`equipoise.parallel` runs them; without it, their names and limits are known here.
"""

from typing import Literal, get_args

from equipoise.errors import EquipoiseError

AllReduceAlgorithm = Literal[
    "ring",
    "halving-doubling",
    "doubling",
    "binary-blocks",
    "tree",
    "two-level",
    "direct",
    "root",
    "sharded-root",
]
AllReduceName = Literal["backend", "auto", AllReduceAlgorithm]
"""`backend`: the sum of torch's own process group; `auto`: the fastest for each bucket, by timing them at the start"""
AppliedAllReduce = Literal["backend", AllReduceAlgorithm]
"""what sums a bucket of gradients, after `auto` has chosen"""
ALL_REDUCE_ALGORITHMS: tuple[AllReduceAlgorithm, ...] = get_args(AllReduceAlgorithm)
POWER_OF_TWO_ALGORITHMS = {"halving-doubling", "doubling"}
"""algorithms in which each worker has a partner in every round"""


def list_runnable_algorithms(workers: int) -> list[AllReduceAlgorithm]:
    """Return the algorithms that can run on so many workers; `two-level` needs as many on each node besides."""
    is_power_of_two = workers & (workers - 1) == 0
    return [name for name in ALL_REDUCE_ALGORITHMS if is_power_of_two or name not in POWER_OF_TWO_ALGORITHMS]


def require_runnable_algorithm(name: str, workers: int) -> None:
    """Refuse an algorithm that cannot run on so many workers."""
    runnable = list_runnable_algorithms(workers)
    if name in POWER_OF_TWO_ALGORITHMS and name not in runnable:
        raise EquipoiseError(
            "all-reduce-unusable",
            f"cannot sum over {workers} workers by {name}: it needs 2, 4, 8, ... workers",
            f"choose another number of workers, or --all-reduce {', '.join(runnable)}, auto or backend",
        )
