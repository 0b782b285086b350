"""What encodings have left out, found again under its names by any number of processes."""

import pytest
import torch

from equipoise.compression.kept_errors import (
    has_errors,
    load_part_error,
    load_process_error,
    part_error_name,
    process_error_name,
    worker_error_name,
)
from tests.support.errors import raises_code


def build_process_errors(processes):
    """Return what each process has left out of two matrices, rank + 1 and ten times as much."""
    return {
        process_error_name(rank, processes, name): torch.full((2, 3), factor * (rank + 1.0))
        for rank in range(processes)
        for name, factor in (("first", 1), ("second.weight", 10))
    }


def test_names_are_those_of_checkpoints():
    assert worker_error_name(3) == "error.worker.3" and part_error_name(512) == "error.part.512"
    assert process_error_name(0, 2, "a.b") == "error.process-0-of-2.a.b"
    assert has_errors({"error.worker.0": torch.zeros(1)}) and not has_errors({"momentum.error": torch.zeros(1)})


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_process_takes_its_own_where_their_number_is_the_same(rank):
    target = torch.zeros(2, 3)
    load_process_error(build_process_errors(3), rank, 3, "second.weight", target)
    assert torch.equal(target, torch.full((2, 3), 10.0 * (rank + 1)))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_other_number_of_processes_shares_the_sum(processes):
    for rank in range(processes):
        target = torch.full((2, 3), 7.0)
        load_process_error(build_process_errors(3), rank, processes, "first", target)
        assert torch.equal(target, torch.full((2, 3), (1 + 2 + 3) / processes))


def test_process_without_what_it_left_out_is_refused():
    errors = build_process_errors(2)
    with raises_code("run-damaged", "error.process-0-of-2.third"):
        load_process_error(errors, 0, 1, "third", torch.zeros(2, 3))
    with raises_code("run-mismatch", "(2, 3), not (3, 2)"):
        load_process_error(errors, 0, 2, "first", torch.zeros(3, 2))
    del errors["error.process-1-of-2.first"]
    with raises_code("run-damaged", "error.process-1-of-2.first"):
        load_process_error(errors, 0, 1, "first", torch.zeros(2, 3))


def test_part_is_put_together_from_parts_of_any_split():
    numbers = torch.arange(20.0)
    errors = {part_error_name(first): numbers[first:stop] for first, stop in ((0, 3), (3, 12), (12, 20))}
    for first, stop in ((0, 20), (2, 4), (3, 12), (5, 6), (11, 20), (20, 20)):
        target = torch.full((stop - first,), -1.0)
        load_part_error(errors, first, target)
        assert torch.equal(target, numbers[first:stop])
    with raises_code("run-damaged", "error.part.18"):
        load_part_error(errors, 18, torch.zeros(3))
