import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.spacing import evenly_spaced_indices


@given(st.integers(1, 3000), st.integers(2, 3000))
def test_indices_are_distinct_and_span_the_sequence(count, max_count):
    indices = evenly_spaced_indices(count, max_count)
    assert len(indices) == min(count, max_count)
    assert indices[0] == 0 and indices[-1] == count - 1
    steps = np.diff(indices)
    assert (steps > 0).all() and (not len(steps) or steps.max() - steps.min() <= 1)


def test_few_items_are_all_chosen():
    assert evenly_spaced_indices(3, 10).tolist() == [0, 1, 2]
    assert evenly_spaced_indices(0, 10).tolist() == []
