"""Schedule of an all-reduce by the name of its algorithm."""

from collections.abc import Callable

from equipoise.errors import EquipoiseError
from equipoise.parallel.hypercube import binary_block_rounds, doubling_rounds, halving_doubling_rounds
from equipoise.parallel.ring import ring_rounds
from equipoise.parallel.schedule import Round, Schedule
from equipoise.parallel.servers import direct_rounds, root_rounds, sharded_root_rounds
from equipoise.parallel.tree import tree_rounds
from equipoise.parallel.two_level import two_level_rounds
from equipoise.registries.all_reduce_registry import AllReduceAlgorithm, require_runnable_algorithm

ROUND_BUILDERS: dict[str, Callable[[int, int, int], list[Round]]] = {
    "ring": ring_rounds,
    "halving-doubling": halving_doubling_rounds,
    "doubling": doubling_rounds,
    "binary-blocks": binary_block_rounds,
    "tree": tree_rounds,
    "direct": direct_rounds,
    "root": root_rounds,
    "sharded-root": sharded_root_rounds,
}
"""functions of the rank, the number of workers and the number of elements; `two-level` needs the node's size too"""


def build_schedule(
    algorithm: AllReduceAlgorithm, rank: int, ranks: int, count: int, group_size: int | None = None
) -> Schedule:
    """Build what worker `rank` of `ranks` does to sum `count` elements.

    `group_size` is the number of workers on each node, by which `two-level` splits; None if nodes differ in it.
    """
    require_runnable_algorithm(algorithm, ranks)
    if ranks == 1:
        return []
    if algorithm != "two-level":
        return ROUND_BUILDERS[algorithm](rank, ranks, count)
    if group_size is None or ranks % group_size:
        raise EquipoiseError(
            "all-reduce-unusable",
            f"cannot sum over {ranks} workers by two-level: it needs as many workers on each node, with ranks in a row",
            "choose another number of workers, or another --all-reduce, such as ring",
        )
    return two_level_rounds(rank, ranks, count, group_size)
