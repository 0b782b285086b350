"""The Pareto front of points, and its knee."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise.planning.devices.pareto import find_front_indices, find_knee_index

COSTS = st.lists(st.tuples(*[st.integers(1, 9).map(float)] * 2), max_size=12)


@given(COSTS)
def test_front_is_what_no_point_beats(points):
    front = find_front_indices(points)
    assert [points[index] for index in front] == sorted(
        point
        for point in set(points)
        if not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
    )


def test_knee_is_furthest_from_the_line_between_the_ends():
    assert find_knee_index([(1.0, 100.0), (2.0, 3.0), (50.0, 2.0), (100.0, 1.0)]) == 1
    assert find_knee_index([(1.0, 2.0), (2.0, 1.0)]) is None
    scaled = np.array([(1.0, 100.0), (2.0, 3.0), (50.0, 2.0), (100.0, 1.0)]) * [7.0, 0.01]
    assert find_knee_index([tuple(point) for point in scaled]) == 1
