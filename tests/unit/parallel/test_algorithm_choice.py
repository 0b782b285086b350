import pytest

from equipoise.parallel.algorithm_choice import AlgorithmTiming, choose_algorithm, estimate_sum_seconds
from equipoise.parallel.node_groups import find_group_size

TIMINGS = [
    AlgorithmTiming("ring", 1000, 0.004),
    AlgorithmTiming("ring", 1_000_000, 0.006),
    AlgorithmTiming("doubling", 1000, 0.001),
    AlgorithmTiming("doubling", 1_000_000, 0.009),
    AlgorithmTiming("root", 1000, 0.002),
]


@pytest.mark.parametrize(("size", "fastest"), [(1, "doubling"), (1000, "doubling"), (10**6, "ring"), (10**8, "ring")])
def test_fastest_algorithm_depends_on_the_size(size, fastest):
    assert choose_algorithm(size, TIMINGS) == fastest


@pytest.mark.parametrize(("size", "seconds"), [(10, 0.004), (500_500, 0.005), (1_000_000, 0.006), (1_999_000, 0.008)])
def test_seconds_lie_on_the_lines_between_timed_sizes(size, seconds):
    assert estimate_sum_seconds(size, "ring", TIMINGS) == pytest.approx(seconds)


def test_algorithm_that_was_timed_once_takes_a_larger_size_in_proportion():
    assert estimate_sum_seconds(3000, "root", TIMINGS) == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("nodes", "size"),
    [([7], 1), ([7, 7, 8, 8], 2), ([1, 2, 3], 1), ([7, 8, 7, 8], None), ([7, 7, 8], None), ([5, 5, 5], 3)],
)
def test_group_size_is_that_of_equal_nodes_in_a_row(nodes, size):
    assert find_group_size(nodes) == size


def test_seconds_never_fall_above_the_largest_size():
    timings = [AlgorithmTiming("ring", 1000, 0.006), AlgorithmTiming("ring", 2000, 0.004)]
    assert estimate_sum_seconds(10**9, "ring", timings) == 0.004
    assert estimate_sum_seconds(1500, "ring", timings) == pytest.approx(0.005)


def test_first_of_two_equally_fast_algorithms_is_chosen():
    timings = [AlgorithmTiming(name, 1000, 0.001) for name in ("tree", "ring")]
    assert choose_algorithm(1000, timings) == "tree" and choose_algorithm(1000, timings[::-1]) == "ring"


@pytest.mark.parametrize(("size", "seconds"), [(2500, 0.0045), (3000, 0.005), (5000, 0.007)])
def test_last_line_goes_on_above_the_largest_of_several_sizes(size, seconds):
    timings = [AlgorithmTiming("ring", *row) for row in ((3000, 0.005), (1000, 0.001), (2000, 0.004))]
    assert estimate_sum_seconds(size, "ring", timings) == pytest.approx(seconds)
