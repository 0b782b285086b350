import pytest

from equipoise.parallel.algorithm_choice import AlgorithmTiming
from equipoise.parallel.fastest_ranges import find_fastest_ranges


def build_timings(seconds_by_algorithm, sizes=(1000, 101_000)):
    return [
        AlgorithmTiming(name, size, value)
        for name, values in seconds_by_algorithm.items()
        for size, value in zip(sizes, values, strict=True)
    ]


def test_ranges_meet_where_one_algorithm_overtakes_another():
    timings = build_timings({"ring": (0.010, 0.020), "direct": (0.001, 0.101), "tree": (0.1, 0.2)})
    first, second = find_fastest_ranges(timings)
    assert (first.algorithm, second.algorithm) == ("direct", "ring")
    assert (first.start_bytes, second.stop_bytes) == (1000, 101_000)
    assert first.stop_bytes == second.start_bytes == pytest.approx(11_000, rel=0.05)  # 1 + 100 x = 10 + 10 x
    assert first.similar == second.similar == ()


def test_algorithms_within_five_percent_are_named():
    timings = build_timings({"ring": (1.0, 2.0), "direct": (1.04, 2.08), "tree": (1.01, 2.2)})
    assert [(part.algorithm, part.similar) for part in find_fastest_ranges(timings)] == [("ring", ("direct",))]


def test_single_size_is_one_range():
    [part] = find_fastest_ranges(build_timings({"ring": (2.0,), "tree": (1.0,)}, sizes=(4096,)))
    assert (part.algorithm, part.start_bytes, part.stop_bytes) == ("tree", 4096, 4096)


def test_algorithm_that_takes_exactly_five_percent_longer_is_alike():
    [part] = find_fastest_ranges(build_timings({"ring": (1.0,), "tree": (1.05,), "root": (1.06,)}, sizes=(4096,)))
    assert (part.algorithm, part.similar) == ("ring", ("tree",))


def test_ranges_follow_each_other_from_the_smallest_to_the_largest_size():
    timings = build_timings({"ring": (9.0, 5.0, 9.0), "tree": (1.0, 6.0, 10.0)}, sizes=(1000, 2000, 64_000))
    ranges = find_fastest_ranges(timings)
    assert [part.algorithm for part in ranges] == ["tree", "ring"]
    assert (ranges[0].start_bytes, ranges[1].stop_bytes) == (1000, 64_000)
    assert ranges[0].stop_bytes == ranges[1].start_bytes == pytest.approx(1889, rel=0.05)  # 1 + 5 x = 9 - 4 x
