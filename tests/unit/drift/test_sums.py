import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.drift.charts.sums import FIXED_POINT_SCALE, SumsLayout, quantized_sum
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

LAYOUT = SumsLayout(class_count=3, statistic_count=2, fourier_count=4)


def row(values, called):
    """A row of a few observations: every figure is that of `values`."""
    parts = dict.fromkeys(("scores", "shifts", "low", "high"), values[:, :2])
    counts = {"all": np.array([len(values)]), "classes": np.bincount(called, minlength=3)}
    return LAYOUT.pack(**parts, **counts, waves=values)


def test_a_row_holds_what_was_put_in_and_nothing_overlaps():
    made = row(np.array([[0.5, -2, 3, 0.25], [1.5, 0, -1, 0]]), np.array([2, 0]))
    assert made.dtype == np.int64 and len(made) == LAYOUT.row_length == 1 + 3 + 4 * 2 + 4
    assert made.tolist()[:4] == [2, 1, 0, 1]
    np.testing.assert_array_equal(LAYOUT.read_part(made, "classes"), [1, 0, 1])
    for name in ("scores", "shifts", "low", "high"):
        np.testing.assert_array_equal(LAYOUT.read_part(made, name), [2, -2])
    np.testing.assert_array_equal(
        LAYOUT.read_part(np.stack([made, made + made]), "waves"), [[2, -2, 2, 0.25], [4, -4, 4, 0.5]]
    )


def test_each_figure_is_rounded_by_itself():
    third = np.full((3, 1), 0.4 / FIXED_POINT_SCALE)
    assert quantized_sum(third).tolist() == [0]  # rounded together it would be 1
    assert quantized_sum(np.array([[0.6 / FIXED_POINT_SCALE], [-0.6 / FIXED_POINT_SCALE]])).tolist() == [0]


def test_what_was_not_looked_at_counts_as_answered_and_as_nothing_else():
    made = LAYOUT.pack_unobserved(7)
    assert LAYOUT.read_part(made, "all") == 7 and made.sum() == 7
    assert not LAYOUT.empty_row().any()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), replicas=st.sampled_from([1, 2, 4, 8]), seed=st.integers(0, 2**32 - 1))
def test_however_observations_are_split_and_ordered_their_sum_is_the_same_to_the_last_bit(data, replicas, seed):
    rng = np.random.default_rng(seed)
    count = data.draw(st.integers(1, 60))
    values, called = rng.normal(0, 1, (count, 4)) * 10.0 ** rng.integers(-8, 3), rng.integers(0, 3, count)
    order, owner = rng.permutation(count), rng.integers(0, replicas, count)
    total = LAYOUT.empty_row()
    for replica in rng.permutation(replicas):
        mine = order[owner == replica]
        cuts = np.sort(rng.integers(0, len(mine) + 1, data.draw(st.integers(0, 5))))
        for batch in np.split(mine, cuts):
            total = total + (row(values[batch], called[batch]) if len(batch) else LAYOUT.empty_row())
    np.testing.assert_array_equal(total, row(values, called))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), replicas=st.sampled_from([1, 2, 4, 8]))
def test_what_a_replica_has_seen_adds_up_to_the_same_bits_however_it_was_spread(seed, replicas):
    rng, base = np.random.default_rng(seed), shapes_profile().baseline
    some = extract_shape_features(render_shapes(64, seed=4)[0])
    owner = rng.integers(0, replicas, 64)
    parts = [np.flatnonzero(owner == replica)[::-1] for replica in range(replicas)]
    rows = [base.sum_features(some.select(part.tolist())) for part in parts if len(part)]
    np.testing.assert_array_equal(np.sum(rows, 0), base.sum_features(some))
