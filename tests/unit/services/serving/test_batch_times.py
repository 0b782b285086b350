"""Which batches the event loop computes itself, by the times of earlier ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.serving.batch_times import INLINE_SECONDS, MIN_SAMPLES, BatchTimes, StageTimes


def measure_batches(**seconds_by_size: float) -> BatchTimes:
    """Return the times after batches of these sizes, which are given as n1=..., took these seconds."""
    times = BatchTimes()
    for name, seconds in seconds_by_size.items():
        for _ in range(MIN_SAMPLES):
            times.add_batch(int(name.removeprefix("n")), seconds)
    return times


def test_unknown_sizes_go_to_the_thread_and_a_single_request_does_not():
    assert [BatchTimes().choose_inline_size(size) for size in (1, 2, 32)] == [1, 0, 0]


def test_size_is_known_after_three_batches():
    times = BatchTimes()
    for expected in (0, 0, 0, 8):
        assert times.choose_inline_size(8) == expected
        times.add_batch(8, INLINE_SECONDS / 2)


@pytest.mark.parametrize(("waiting", "expected"), [(1, 1), (7, 7), (8, 8), (9, 8), (16, 8), (30, 8)])
def test_as_many_requests_as_fit_into_two_milliseconds_are_computed(waiting, expected):
    each = INLINE_SECONDS / 8.5
    times = measure_batches(**{f"n{size}": size * each for size in (1, 2, 4, 8, 16, 32)})
    assert times.choose_inline_size(waiting) == expected


def test_large_batch_goes_to_the_thread_where_it_is_cheaper_per_request():
    times = measure_batches(n1=0.9 * INLINE_SECONDS, n32=2 * INLINE_SECONDS)
    assert times.choose_inline_size(32) == 0
    assert times.choose_inline_size(1) == 1


def test_slow_single_requests_go_to_the_thread():
    times = measure_batches(n1=3 * INLINE_SECONDS, n8=24 * INLINE_SECONDS)
    assert [times.choose_inline_size(size) for size in (1, 8)] == [0, 0]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [((1.0, 1.0, 1.0, 1.0), 1), ((1.0, 0.6, 0.5, 0.5), 4), ((1.0, 0.6, 0.5, 0.4), 8), ((1.0, 0.6, 0.5, 0.7), 4)],
)
def test_thread_takes_the_smallest_batch_that_is_nearly_the_cheapest(costs, expected):
    sizes = (1, 2, 4, 8)
    times = measure_batches(**{f"n{size}": size * cost / 100 for size, cost in zip(sizes, costs, strict=True)})
    assert times.choose_thread_size(8) == expected
    assert times.choose_thread_size(3) == min(expected, 3)
    assert times.choose_thread_size(30) == 16  # not known yet


def test_thread_tries_unknown_sizes_the_smallest_first():
    times, tried = BatchTimes(), []
    for _ in range(13):
        tried.append(times.choose_thread_size(7))
        times.add_batch(tried[-1], tried[-1] / 100)
    assert tried == [*[1] * 3, *[2] * 3, *[4] * 3, *[7] * 3, 1]


def test_stages_are_short_while_none_takes_longer_than_two_milliseconds():
    times = StageTimes()
    assert times.are_short(1.0)
    for _ in range(20):
        times.add_sample(0, INLINE_SECONDS / 2)
        times.add_sample(1, 0.99 * INLINE_SECONDS)
    assert times.seconds[0] == pytest.approx(INLINE_SECONDS / 2, rel=0.02)
    assert times.are_short(sum(times.seconds))
    for _ in range(20):
        times.add_sample(1, 1.2 * INLINE_SECONDS)
    assert not times.are_short(sum(times.seconds))


def test_stages_are_short_again_once_a_request_takes_less_time_in_the_thread():
    times = StageTimes()
    for stage in range(3):
        times.add_sample(stage, 1.2 * INLINE_SECONDS)
    assert not times.are_short(3.6 * INLINE_SECONDS)
    assert times.are_short(2.9 * INLINE_SECONDS)


def test_times_follow_a_model_that_gets_slower():
    times = measure_batches(n4=INLINE_SECONDS / 2)
    for _ in range(30):
        times.add_batch(4, 2 * INLINE_SECONDS)
    assert times.seconds_per_request[2] == pytest.approx(INLINE_SECONDS / 2, rel=0.01)
    assert times.choose_inline_size(4) == 0


def test_first_batch_of_a_size_does_not_count_once_there_are_others():
    times = BatchTimes()
    for seconds in (0.9, 0.001, 0.002):
        times.add_batch(2, 2 * seconds)
    assert times.seconds_per_request[1] == pytest.approx(0.0015)


def test_size_that_once_seemed_expensive_is_tried_again():
    times = measure_batches(n2=0.8 * INLINE_SECONDS, n4=4 * INLINE_SECONDS)
    sizes = [times.choose_inline_size(4)]
    assert sizes == [2]
    while sizes[-1] < 3 and len(sizes) < 5000:
        times.add_batch(2, 0.6 * INLINE_SECONDS)
        sizes.append(times.choose_inline_size(4))
    assert sizes[-1] == 3
    times.add_batch(3, 3 * INLINE_SECONDS)
    assert times.choose_inline_size(4) == 2


@given(
    st.dictionaries(st.sampled_from([1, 2, 3, 4, 7, 8, 16, 32]), st.floats(0, 0.05), max_size=8),
    st.integers(1, 32),
)
def test_chosen_size_never_exceeds_the_waiting_requests_or_the_limit(seconds_by_size, waiting):
    times = measure_batches(**{f"n{size}": seconds for size, seconds in seconds_by_size.items()})
    chosen = times.choose_inline_size(waiting)
    assert 0 <= chosen <= waiting
    if chosen > 1:
        exponent = (chosen - 1).bit_length()
        assert times.seconds_per_request[exponent] * chosen <= INLINE_SECONDS * 1.0001


def test_sizes_not_in_use_follow_the_speed_of_those_in_use():
    times = measure_batches(n4=0.9 * INLINE_SECONDS, n32=7 * INLINE_SECONDS)
    for seconds in (0.9, 1.3):  # while the large batch was tried, the machine was faster than later
        for _ in range(100):
            times.add_batch(4, seconds * INLINE_SECONDS)
    assert times.seconds_per_request[5] == pytest.approx(1.3 * INLINE_SECONDS / 4, rel=0.1)
    assert times.choose_inline_size(32) == 3


def test_several_sizes_in_use_share_the_scaling_of_the_others():
    times = measure_batches(n2=INLINE_SECONDS / 4, n4=INLINE_SECONDS / 2, n32=4 * INLINE_SECONDS)
    for seconds in (1.0, 2.0):
        for _ in range(50):
            times.add_batch(2, seconds * INLINE_SECONDS / 4)
            times.add_batch(4, seconds * INLINE_SECONDS / 2)
    assert times.seconds_per_request[5] == pytest.approx(INLINE_SECONDS / 4, rel=0.02)
