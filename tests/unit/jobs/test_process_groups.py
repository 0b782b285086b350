"""Process groups of fewer and fewer workers, in real processes."""

import os

import torch
import torch.distributed as dist

from jobs.timing.process_groups import ShrinkingProcessGroup
from tests.support.gloo import run_with_gloo


def sum_over_groups(sizes):
    """Return the sum of rank + 1 over the workers of each group that this worker belongs to."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    group = ShrinkingProcessGroup(torch.device("cpu"))
    sums = []
    for workers in sizes:
        if not group.shrink(workers):
            group.wait_for_end()
            return sums
        value = torch.tensor(group.rank + 1)
        if workers > 1:
            dist.all_reduce(value)
        sums.append((workers, dist.is_initialized(), int(value)))
    if group.rank == 0:
        group.end()
    return sums


def test_groups_shrink_while_the_others_wait(tmp_path):
    first, second, third = run_with_gloo(3, tmp_path, sum_over_groups, [3, 2, 1])
    assert first == [(3, True, 6), (2, True, 3), (1, False, 1)]
    assert second == first[:2] and third == first[:1]


def test_group_that_ends_early_lets_all_workers_go_on(tmp_path):
    assert run_with_gloo(3, tmp_path, sum_over_groups, [2]) == [[(2, True, 3)], [(2, True, 3)], []]
