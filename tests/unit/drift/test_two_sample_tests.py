import numpy as np
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from equipoise.drift.features.random_fourier import median_distance
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test


def compute_mmd_by_loop(reference, window, labels):
    """Return the unbiased squared discrepancy, summed pair by pair as in the paper; label 1 marks the window."""
    both, scale = np.concatenate([window, reference]).astype(float), median_distance(reference)
    sums, pairs = {(1, 1): 0.0, (0, 0): 0.0, (0, 1): 0.0, (1, 0): 0.0}, {}
    for i, left in enumerate(both):
        for j, right in enumerate(both):
            if i != j:
                kind = (labels[i], labels[j])
                sums[kind] += np.exp(-((left - right) ** 2).sum() / (2 * scale**2))
                pairs[kind] = pairs.get(kind, 0) + 1
    means = {kind: sums[kind] / pairs[kind] for kind in pairs}
    return means[1, 1] + means[0, 0] - means[0, 1] - means[1, 0]


def draw_samples(seed, reference=60, window=30, columns=4, shift=0.0):
    """Return a normal reference and window of the given sizes, (examples, columns)."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (reference, columns)), rng.normal(shift, 1, (window, columns))


def test_mmd_of_two_pairs_is_the_one_computed_by_hand():
    near, far = np.exp(-0.5), np.exp(-1)
    square = np.array([[0.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    assert mmd_permutation_test(*square).statistic == pytest.approx(2 * near - 2 * (near + far) / 2, abs=1e-6)


@pytest.mark.parametrize("group_size", [1, 3, 4])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_mmd_matches_a_double_loop(group_size, offset):
    reference, window = draw_samples(1, 23, 14, shift=0.3)
    expected = compute_mmd_by_loop(reference, window, [1] * 14 + [0] * 23)
    result = mmd_permutation_test(reference + offset, window + offset, 10, group_size=group_size)
    assert result.statistic == pytest.approx(expected, abs=1e-6)


def test_mmd_p_value_is_the_share_among_all_permutations_by_a_double_loop():
    rng = np.random.default_rng(5)
    reference, window = rng.normal(0, 1, (5, 2)), rng.normal(0.7, 1, (3, 2))
    choices = [(i, j, k) for i in range(8) for j in range(i) for k in range(j)]
    values = [
        compute_mmd_by_loop(reference, window, [int(index in chosen) for index in range(8)]) for chosen in choices
    ]
    observed = compute_mmd_by_loop(reference, window, [1] * 3 + [0] * 5)
    share = np.mean(np.array(values) >= observed - 1e-9)
    assert mmd_permutation_test(reference, window, 20_000).p_value == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize("group_size", [1, 2, 7])
def test_mmd_rejects_windows_without_drift_as_often_as_requested(group_size):
    p_values = np.array(
        [
            mmd_permutation_test(*draw_samples(seed), permutations=99, seed=seed, group_size=group_size).p_value
            for seed in range(400)
        ]
    )
    assert (p_values <= 0.05).mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
    assert p_values.mean() == pytest.approx(0.5, abs=0.06)


def test_permuting_groups_has_the_power_of_permuting_examples():
    samples = [draw_samples(seed, 200, 100, shift=0.2) for seed in range(100)]
    powers = [
        np.mean(
            [
                mmd_permutation_test(*pair, permutations=99, seed=seed, group_size=group_size).p_value <= 0.05
                for pair in samples
            ]
        )
        for seed, group_size in enumerate((1, 2))
    ]
    assert 0.3 < powers[0] < 0.95
    assert powers[1] == pytest.approx(powers[0], abs=0.1)


def test_groups_are_not_made_of_similar_neighbours():
    reference, window = (np.sort(sample, 0) for sample in draw_samples(3, 300, 120))
    assert mmd_permutation_test(reference, window, 199).p_value > 0.05


def test_mmd_does_not_depend_on_order_and_seed():
    reference, window = draw_samples(4, 150, 110, shift=0.1)
    result, reordered = (
        mmd_permutation_test(reference, window),
        mmd_permutation_test(reference[::-1], window[::-1], seed=9),
    )
    assert reordered.statistic == pytest.approx(result.statistic, abs=1e-7)
    assert reordered.p_value == pytest.approx(result.p_value, abs=0.06)
    assert mmd_permutation_test(reference, window) == result


def test_mmd_p_value_is_never_0_and_is_1_for_equal_samples():
    reference, window = draw_samples(0, shift=5.0)
    assert mmd_permutation_test(reference, window, 199).p_value == 1 / 200
    assert mmd_permutation_test(np.ones((30, 3)), np.ones((10, 3)), 199).p_value == 1


@pytest.mark.parametrize("distance", [1e3, 1e8, 1e30])
def test_mmd_rejects_a_window_at_any_distance(distance):
    reference, window = draw_samples(0)
    result = mmd_permutation_test(reference, window + distance, 99)
    assert result.p_value == 0.01 and 0 < result.statistic < 2


def test_ks_by_column_matches_scipy():
    reference, window = draw_samples(2, 300, 80, 6, shift=0.2)
    reference[:, 3:], window[:, 3:] = np.maximum(reference[:, 3:], 0).round(1), np.maximum(window[:, 3:], 0).round(1)
    result = ks_test_by_column(reference, window)
    expected = [ks_2samp(left, right, method="asymp") for left, right in zip(reference.T, window.T, strict=True)]
    np.testing.assert_allclose(result.statistic, [column.statistic for column in expected])
    np.testing.assert_allclose(result.p_value, [column.pvalue for column in expected], atol=0.01)


def test_ks_of_equal_columns_is_about_0_although_half_the_values_are_tied():
    values = np.maximum(np.linspace(-1, 1, 100), 0)[:, None]
    result = ks_test_by_column(values, values[::2])
    assert result.statistic[0] == pytest.approx(0.01, abs=0.011)
    assert result.p_value[0] == pytest.approx(1)
    assert ks_test_by_column(values, values).statistic[0] == 0


@pytest.mark.parametrize("sizes", [(400, 100), (50, 50), (30, 12)])
@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.9])
def test_ks_raises_no_false_alarm_on_zeros_of_a_relu(zeros, sizes):
    rng = np.random.default_rng(0)
    reference, window = (np.maximum(rng.random((size, 1000)) - zeros, 0) for size in sizes)
    assert (ks_test_by_column(reference, window).p_value < 0.05).mean() < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)


def test_ks_does_not_depend_on_the_order_within_a_sample():
    reference, window = draw_samples(7)
    np.testing.assert_array_equal(
        ks_test_by_column(reference, window).p_value, ks_test_by_column(reference[::-1], window[::-1]).p_value
    )


def test_chi_squared_matches_scipy():
    counts = np.array([50, 30, 20]), np.array([20, 30, 50])
    assert chi_squared_test(*counts).statistic == pytest.approx(30**2 / 70 * 2)
    assert chi_squared_test(*counts).p_value == pytest.approx(chi2_contingency(np.array(counts)).pvalue)


def test_rare_classes_are_merged_until_five_of_each_are_expected():
    result = chi_squared_test(np.array([400, 1, 90, 6, 3]), np.array([70, 2, 25, 0, 3]))
    assert result.p_value == pytest.approx(chi2_contingency([[400, 100], [70, 30]], correction=False).pvalue)
    assert chi_squared_test(np.array([9, 1]), np.array([3, 0])) == chi_squared_test(np.array([5]), np.array([3]))
    assert chi_squared_test(np.array([9, 1]), np.array([3, 0])).p_value == 1


def test_chi_squared_merges_a_single_rare_class_with_the_next_rarest():
    result = chi_squared_test(np.array([100, 110, 2]), np.array([50, 40, 1]))
    assert result.p_value == pytest.approx(chi_squared_test(np.array([102, 110]), np.array([51, 40])).p_value)


def test_chi_squared_rejects_unchanged_shares_as_often_as_requested():
    rng, prior = np.random.default_rng(0), np.array([0.5, 0.3, 0.1, 0.05, 0.03, 0.02])
    p_values = [
        chi_squared_test(rng.multinomial(1000, prior), rng.multinomial(100, prior)).p_value for _ in range(2000)
    ]
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_chi_squared_detects_a_missing_class_and_ignores_the_order_of_classes():
    reference, window = np.full(10, 100), np.array([0] + [33] * 9)
    assert chi_squared_test(reference, window).p_value < 1e-3
    assert chi_squared_test(reference, window[::-1]).p_value == pytest.approx(
        chi_squared_test(reference, window).p_value
    )


@pytest.mark.parametrize("two_sample_test", [mmd_permutation_test, ks_test_by_column])
@pytest.mark.parametrize(
    ("window", "message"),
    [
        (np.zeros((0, 3)), "at least 2 rows"),
        (np.zeros((1, 3)), "at least 2 rows"),
        (np.zeros(3), "at least 2 rows"),
        (np.zeros((4, 2)), "3 columns and the window 2"),
        (np.full((4, 3), np.nan), "NaN or infinite"),
    ],
)
def test_unusable_samples_are_refused_in_one_sentence(two_sample_test, window, message):
    with pytest.raises(ValueError, match=message):
        two_sample_test(np.ones((5, 3)), window)


@pytest.mark.parametrize("options", [{"permutations": 0}, {"group_size": 0}, {"group_size": 31}])
def test_impossible_permutations_are_refused(options):
    with pytest.raises(ValueError, match="ask for at least 1"):
        mmd_permutation_test(*draw_samples(0), **options)


@pytest.mark.parametrize("counts", [[0, 0], [-1, 5], [[1, 2]], [np.nan, 1]])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(ValueError, match="how many examples"):
        chi_squared_test(np.array([5, 5]), np.array(counts))


def test_counts_of_different_numbers_of_classes_are_refused():
    with pytest.raises(ValueError, match="same classes"):
        chi_squared_test(np.array([5, 5]), np.array([5, 5, 5]))
