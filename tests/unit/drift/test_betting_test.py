import numpy as np
import pytest

from equipoise.drift.charts.baseline import rank_margin
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

POOL_IMAGES = 2500
STEPS_PER_STREAM, IMAGES_PER_STEP = 30, 32


def compute_betting_gains(seed=7, transform=None):
    """Return the gains of bets on fresh images, (images, low or high, statistics), and the labels of the images."""
    base, (images, labels) = shapes_profile().baseline, render_shapes(POOL_IMAGES, seed)
    features = extract_shape_features(images if transform is None else transform(images))
    layout = base.layout
    rows = np.stack([base.sum_features(features.select([index])) for index in range(len(features))])
    return np.stack([layout.read_part(rows, "low"), layout.read_part(rows, "high")], 1), labels


def find_max_log_wealth(gains, indices):
    """Return the highest logarithm of the mean wealth that a stream of the images at `indices` ever reaches."""
    betting_test, highest = BettingTest.initial(len(IMAGE_SCHEMA)), -np.inf
    for step in gains[indices].reshape(STEPS_PER_STREAM, IMAGES_PER_STEP, 2, -1).sum(1):
        betting_test.update(*step)
        highest = max(highest, betting_test.log_mean_wealth())
    return highest


@pytest.fixture(scope="module")
def clean_gains():
    return compute_betting_gains()


def test_update_redistributes_the_wealth_and_multiplies_it_by_the_gains():
    betting_test = BettingTest.initial(1)
    assert betting_test.log_mean_wealth() == pytest.approx(0)
    betting_test.update(np.log([0.5]), np.log([1.5]))
    np.testing.assert_allclose(np.exp(betting_test.wealth), [[0.5 / 3, 1 / 3, 1.5 / 3]])
    assert betting_test.log_mean_wealth() == pytest.approx(0)
    betting_test.update(np.log([0.5]), np.log([1.5]))
    redistributed = (1 - 0.01) * np.array([0.5, 1, 1.5]) / 3 + 0.01 / 3
    np.testing.assert_allclose(np.exp(betting_test.wealth), [redistributed * [0.5, 1, 1.5]])


def test_log_mean_wealth_averages_over_statistics():
    betting_test = BettingTest(np.log([[1.0, 2, 3], [4, 5, 15]]))
    assert betting_test.log_mean_wealth() == pytest.approx(np.log((6 + 24) / 2))


def test_bets_gain_nothing_on_average_while_ranks_are_uniform():
    base, count = shapes_profile().baseline, shapes_profile().baseline.ranked.shape[1]
    scores = base.ranked.T.astype(np.float64)  # of the reference images, sorted by statistic: their ranks are uniform
    rank = base.ranks(scores) - 0.5
    assert rank.mean() == pytest.approx(0, abs=1e-6) and np.abs(rank).max() <= 0.5
    for sign in (-1, 1):
        assert (1 + sign * rank - base.rank_margin).mean(0).max() <= 1
    assert base.rank_margin == rank_margin(base.usual.counts.min()) and count == 600


def test_tied_scores_get_the_middle_of_their_ranks():
    base = shapes_profile().baseline
    index = IMAGE_SCHEMA.names.index("strange")  # binary: one score per class, and another for its outliers
    lowest_score = base.ranked[index, 0]
    tied_share = (base.ranked[index] == lowest_score).mean()
    scores = np.zeros((1, len(IMAGE_SCHEMA)))
    scores[0, index] = lowest_score
    assert tied_share > 0.1 and base.ranks(scores)[0, index] == pytest.approx(tied_share / 2)


def test_bets_on_fresh_images_gain_nothing_on_average(clean_gains):
    gains, _ = clean_gains
    assert np.exp(gains).mean(0).max() <= 1
    assert np.abs(gains * 2**24 - np.rint(gains * 2**24)).max() == 0


@pytest.mark.parametrize("run_length", [1, 20])
def test_wealth_reaches_20_on_at_most_one_of_20_clean_streams(clean_gains, run_length):
    gains, labels = clean_gains
    rng, members = np.random.default_rng(run_length), [np.flatnonzero(labels == label) for label in range(4)]
    maxima = []
    for _ in range(200):
        classes = rng.integers(0, 4, IMAGES_PER_STEP * STEPS_PER_STREAM // run_length).repeat(run_length)
        indices = np.choose(classes, [rng.choice(images, len(classes)) for images in members])
        maxima.append(find_max_log_wealth(gains, indices))
    assert (np.array(maxima) >= np.log(20)).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert np.max(maxima) > -2  # so the bets are not so cautious that the bound holds trivially


def test_wealth_exceeds_20_on_every_stream_of_darker_images():
    gains, _ = compute_betting_gains(8, lambda images: (images.float() * 0.8).round().byte())
    rng = np.random.default_rng(0)
    maxima = [
        find_max_log_wealth(gains, rng.integers(0, POOL_IMAGES, IMAGES_PER_STEP * STEPS_PER_STREAM)) for _ in range(10)
    ]
    assert min(maxima) > np.log(20)
