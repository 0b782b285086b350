"""Tests of the exchange between workers that observe together, also where one of them takes no part."""

import warnings

import torch.distributed as dist

from equipoise.observation.worker_group import WorkerGroup
from tests.support.gloo import run_with_gloo


def gather_own_rank():
    group = WorkerGroup()
    return group.size, group.gather_rows([float(group.rank), 0.5])


def test_every_worker_gets_the_rows_of_all(tmp_path):
    assert run_with_gloo(2, tmp_path, gather_own_rank) == [(2, [[0.0, 0.5], [1.0, 0.5]])] * 2


def test_one_worker_gets_its_own_row():
    assert gather_own_rank() == (1, [[0.0, 0.5]])


def gather_own_bytes():
    group = WorkerGroup()
    return group.gather_bytes(b"" if group.rank == 0 else b"\x00\xff\x00")


def test_every_worker_gets_the_bytes_of_all_however_many_they_are(tmp_path):
    assert run_with_gloo(2, tmp_path, gather_own_bytes) == [[b"", b"\x00\xff\x00"]] * 2
    assert gather_own_bytes() == [b""]


def gather_alone():
    """Gather on the first worker alone, then sum on both, and return what the first gathered and the sum."""
    group = WorkerGroup(gather_seconds=0.2)
    rows = messages = None
    if group.rank == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = [group.gather_rows([7.0]), group.gather_rows([8.0])]
        messages = len(caught)
    dist.barrier()
    results = [None, None]
    dist.all_gather_object(results, group.rank)
    return rows, messages, results


def test_worker_whose_peers_do_not_answer_goes_on_alone_and_disturbs_no_exchange(tmp_path):
    first, second = run_with_gloo(2, tmp_path, gather_alone)
    assert first == ([[[7.0]], [[8.0]]], 1, [0, 1])
    assert second == (None, None, [0, 1])
