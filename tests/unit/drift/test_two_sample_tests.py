import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from equipoise.drift.features.random_fourier import median_distance
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test


def by_loop(reference, window, labels):
    """The unbiased squared discrepancy, pair by pair, as it is written in the paper."""
    both, scale = np.concatenate([window, reference]).astype(float), median_distance(reference)
    sums, pairs = {(1, 1): 0.0, (0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.0}, {}
    for i, one in enumerate(both):
        for j, other in enumerate(both):
            if i != j:
                kind = (labels[i], labels[j])
                sums[kind] += np.exp(-((one - other) ** 2).sum() / (2 * scale**2))
                pairs[kind] = pairs.get(kind, 0) + 1
    means = {kind: sums[kind] / pairs[kind] for kind in pairs}
    return means[1, 1] + means[0, 0] - means[0, 1] - means[1, 0]


def drawn(seed, reference=60, window=30, columns=4, shift=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (reference, columns)), rng.normal(shift, 1, (window, columns))


def test_two_pairs_are_as_far_apart_as_one_works_out_by_hand():
    near, far = np.exp(-0.5), np.exp(-1)
    square = np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    assert mmd_permutation_test(*square).statistic == pytest.approx(2 * near - 2 * (near + far) / 2, abs=1e-6)


@pytest.mark.parametrize("together", [1, 3, 4])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_the_statistic_is_that_of_a_double_loop(together, offset):
    reference, window = drawn(1, 23, 14, shift=0.3)
    expected = by_loop(reference, window, [1] * 14 + [0] * 23)
    found = mmd_permutation_test(reference + offset, window + offset, 10, group_size=together)
    assert found.statistic == pytest.approx(expected, abs=1e-6)


def test_p_is_the_share_of_all_exchanges_that_a_double_loop_counts():
    rng = np.random.default_rng(5)
    reference, window = rng.normal(0, 1, (5, 2)), rng.normal(0.7, 1, (3, 2))
    places = [(i, j, k) for i in range(8) for j in range(i) for k in range(j)]
    values = [by_loop(reference, window, [int(place in chosen) for place in range(8)]) for chosen in places]
    observed = by_loop(reference, window, [1] * 3 + [0] * 5)
    share = np.mean(np.array(values) >= observed - 1e-9)
    assert mmd_permutation_test(reference, window, 20_000).p_value == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize("together", [1, 2, 7])
def test_a_clean_window_is_found_apart_as_often_as_asked(together):
    ps = np.array(
        [
            mmd_permutation_test(*drawn(seed), permutations=99, seed=seed, group_size=together).p_value
            for seed in range(400)
        ]
    )
    assert (ps <= 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert ps.mean() == pytest.approx(0.5, abs=0.06)


def test_moving_several_examples_as_one_finds_no_less():
    windows = [drawn(seed, 200, 100, shift=0.2) for seed in range(100)]
    found = [
        np.mean(
            [
                mmd_permutation_test(*pair, permutations=99, seed=seed, group_size=together).p_value <= 0.05
                for pair in windows
            ]
        )
        for seed, together in enumerate((1, 2))
    ]
    assert 0.3 < found[0] < 0.95
    assert found[1] == pytest.approx(found[0], abs=0.1)


def test_runs_of_alike_neighbours_cannot_be_mistaken_for_pieces():
    reference, window = (np.sort(sample, 0) for sample in drawn(3, 300, 120))
    assert mmd_permutation_test(reference, window, 199).p_value > 0.05


def test_order_and_seed_leave_the_statistic_alone():
    reference, window = drawn(4, 150, 110, shift=0.1)
    one, other = mmd_permutation_test(reference, window), mmd_permutation_test(reference[::-1], window[::-1], seed=9)
    assert other.statistic == pytest.approx(one.statistic, abs=1e-7)
    assert other.p_value == pytest.approx(one.p_value, abs=0.06)
    assert mmd_permutation_test(reference, window) == one


def test_p_is_never_0_and_1_where_nothing_differs():
    reference, window = drawn(0, shift=5.0)
    assert mmd_permutation_test(reference, window, 199).p_value == 1 / 200
    assert mmd_permutation_test(np.ones((30, 3)), np.ones((10, 3)), 199).p_value == 1


@pytest.mark.parametrize("far", [1e3, 1e8, 1e30])
def test_a_window_however_far_is_apart(far):
    reference, window = drawn(0)
    found = mmd_permutation_test(reference, window + far, 99)
    assert found.p_value == 0.01 and 0 < found.statistic < 2


def test_gaps_of_columns_are_those_of_scipy():
    reference, window = drawn(2, 300, 80, 6, shift=0.2)
    reference[:, 3:], window[:, 3:] = np.maximum(reference[:, 3:], 0).round(1), np.maximum(window[:, 3:], 0).round(1)
    found = ks_test_by_column(reference, window)
    expected = [ks_2samp(one, other, method="asymp") for one, other in zip(reference.T, window.T, strict=True)]
    np.testing.assert_allclose(found.statistic, [one.statistic for one in expected])
    np.testing.assert_allclose(found.p_value, [one.pvalue for one in expected], atol=0.01)


def test_equal_columns_have_no_gap_though_half_their_values_are_tied():
    values = np.maximum(np.linspace(-1, 1, 100), 0)[:, None]
    found = ks_test_by_column(values, values[::2])
    assert found.statistic[0] == pytest.approx(0.01, abs=0.011)
    assert found.p_value[0] == pytest.approx(1)
    assert ks_test_by_column(values, values).statistic[0] == 0


@pytest.mark.parametrize("sizes", [(400, 100), (50, 50), (30, 12)])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_zeros_of_a_rectifier_raise_no_alarm(zeros, sizes):
    rng = np.random.default_rng(0)
    reference, window = (np.maximum(rng.random((size, 1000)) - zeros, 0) for size in sizes)
    assert (ks_test_by_column(reference, window).p_value < 0.05).mean() < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_order_within_a_sample_is_nothing_to_its_distribution():
    reference, window = drawn(7)
    np.testing.assert_array_equal(
        ks_test_by_column(reference, window).p_value, ks_test_by_column(reference[::-1], window[::-1]).p_value
    )


def test_shares_are_compared_as_by_scipy():
    counts = np.array([50, 30, 20]), np.array([20, 30, 50])
    assert chi_squared_test(*counts).statistic == pytest.approx(30**2 / 70 * 2)
    assert chi_squared_test(*counts).p_value == pytest.approx(chi2_contingency(np.array(counts)).pvalue)


def test_rare_classes_are_taken_together_until_five_of_each_are_expected():
    found = chi_squared_test(np.array([400, 1, 90, 6, 3]), np.array([70, 2, 25, 0, 3]))
    assert found.p_value == pytest.approx(chi2_contingency([[400, 100], [70, 30]], correction=False).pvalue)
    assert chi_squared_test(np.array([9, 1]), np.array([3, 0])) == chi_squared_test(np.array([5]), np.array([3]))
    assert chi_squared_test(np.array([9, 1]), np.array([3, 0])).p_value == 1


def test_shares_that_have_not_changed_are_found_changed_as_often_as_asked():
    rng, prior = np.random.default_rng(0), np.array([0.5, 0.3, 0.1, 0.05, 0.03, 0.02])
    ps = [chi_squared_test(rng.multinomial(1000, prior), rng.multinomial(100, prior)).p_value for _ in range(2000)]
    assert np.mean(np.array(ps) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_a_missing_class_shows_and_the_order_of_classes_does_not():
    reference, window = np.full(10, 100), np.array([0] + [33] * 9)
    assert chi_squared_test(reference, window).p_value < 1e-3
    assert chi_squared_test(reference, window[::-1]).p_value == pytest.approx(
        chi_squared_test(reference, window).p_value
    )


@pytest.mark.parametrize("test", [mmd_permutation_test, ks_test_by_column])
@pytest.mark.parametrize(
    ("window", "said"),
    [
        (np.zeros((0, 3)), "at least 2 rows"),
        (np.zeros((1, 3)), "at least 2 rows"),
        (np.zeros(3), "at least 2 rows"),
        (np.zeros((4, 2)), "3 columns and the window 2"),
        (np.full((4, 3), np.nan), "NaN or infinite"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(test, window, said):
    with pytest.raises(ValueError, match=said):
        test(np.ones((5, 3)), window)


@pytest.mark.parametrize("asked", [{"permutations": 0}, {"group_size": 0}, {"group_size": 31}])
def test_permutations_that_cannot_be_made_are_refused(asked):
    with pytest.raises(ValueError, match="ask for at least 1"):
        mmd_permutation_test(*drawn(0), **asked)


@pytest.mark.parametrize("counts", [[0, 0], [-1, 5], [[1, 2]], [np.nan, 1]])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match="how many examples"):
        chi_squared_test(np.array([5, 5]), np.array(counts))


def test_counts_of_other_classes_are_refused():
    with pytest.raises(ValueError, match="same classes"):
        chi_squared_test(np.array([5, 5]), np.array([5, 5, 5]))
