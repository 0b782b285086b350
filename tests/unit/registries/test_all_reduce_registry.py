"""Algorithms that sum gradients: on how many workers each can run."""

import pytest

from equipoise.registries.all_reduce_registry import (
    ALL_REDUCE_ALGORITHMS,
    list_runnable_algorithms,
    require_runnable_algorithm,
)
from tests.support.errors import raises_code

PAIRED = {"halving-doubling", "doubling"}


@pytest.mark.parametrize("workers", range(1, 18))
def test_algorithms_with_a_partner_in_every_round_run_on_powers_of_two(workers):
    is_power = workers in (1, 2, 4, 8, 16)
    runnable = [name for name in ALL_REDUCE_ALGORITHMS if is_power or name not in PAIRED]
    assert list_runnable_algorithms(workers) == runnable
    for name in ("backend", "auto", *runnable):
        require_runnable_algorithm(name, workers)
    for name in PAIRED - {*runnable}:
        with raises_code("all-reduce-unusable", f"{workers} workers by {name}", "2, 4, 8", ", ".join(runnable)):
            require_runnable_algorithm(name, workers)
