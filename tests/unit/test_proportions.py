import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from equipoise.proportions import wilson_interval


@given(st.integers(1, 5000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count))))
def test_interval_of_whole_numbers_is_that_of_scipy(counts):
    successes, count = counts
    expected = binomtest(successes, count).proportion_ci(0.95, "wilson")
    assert wilson_interval(successes / count, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.floats(0, 1), st.floats(0, 1e6))
def test_interval_holds_the_share_and_narrows_with_more_examples(share, count):
    low, high = wilson_interval(share, count)
    narrow_low, narrow_high = wilson_interval(share, 4 * max(count, 1))
    assert 0 <= low <= narrow_low + 1e-12 and narrow_high <= high + 1e-12 and high <= 1
    assert low - 1e-12 <= share <= high + 1e-12
