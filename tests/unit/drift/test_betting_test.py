import numpy as np
import pytest

from equipoise.drift.charts.baseline import CHARTED_FEATURES, rank_margin
from equipoise.drift.charts.betting_test import JUMP_SHARE, BettingTest
from equipoise.drift.charts.sums import FIXED_POINT_SCALE
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

POOL = 2500
STEPS, SIZE = 30, 32  # of a stream, and pictures of each


def gains(seed=7, change=None):
    """(pictures, low or high, figures): what bets on fresh pictures gain."""
    base, (some, labels) = shapes_profile().baseline, render_shapes(POOL, seed)
    shown = extract_shape_features(some if change is None else change(some))
    layout = base.layout
    rows = np.stack([base.sum_features(shown.select([place])) for place in range(len(shown))])
    return np.stack([layout.read_part(rows, "low"), layout.read_part(rows, "high")], 1), labels


def highest(table, places):
    """The highest value that evidence ever reaches on one stream."""
    evidence, most = BettingTest.initial(len(CHARTED_FEATURES)), -np.inf
    for step in table[places].reshape(STEPS, SIZE, 2, -1).sum(1):
        evidence.update(*step)
        most = max(most, evidence.log_mean_wealth())
    return most


@pytest.fixture(scope="module")
def clean():
    return gains()


def test_wealth_is_moved_as_by_hand():
    evidence = BettingTest.initial(1)
    assert evidence.log_mean_wealth() == pytest.approx(0)
    evidence.update(np.log([0.5]), np.log([1.5]))
    np.testing.assert_allclose(np.exp(evidence.wealth), [[0.5 / 3, 1 / 3, 1.5 / 3]])
    assert evidence.log_mean_wealth() == pytest.approx(0)
    evidence.update(np.log([0.5]), np.log([1.5]))
    kept = (1 - JUMP_SHARE) * np.array([0.5, 1, 1.5]) / 3 + JUMP_SHARE / 3
    np.testing.assert_allclose(np.exp(evidence.wealth), [kept * [0.5, 1, 1.5]])


def test_the_value_is_of_the_mean_wealth_over_figures():
    evidence = BettingTest(np.log([[1.0, 2, 3], [4, 5, 15]]))
    assert evidence.log_mean_wealth() == pytest.approx(np.log((6 + 24) / 2))


def test_bets_are_a_fair_game_at_most_while_ranks_are_uniform():
    base, count = shapes_profile().baseline, shapes_profile().baseline.ranked.shape[1]
    figures = base.ranked.T.astype(np.float64)  # each reference picture's scores, in order: ranks uniform by themselves
    rank = base.ranks(figures) - 0.5
    assert rank.mean() == pytest.approx(0, abs=1e-6) and np.abs(rank).max() <= 0.5
    for sign in (-1, 1):
        assert (1 + sign * rank - base.rank_margin).mean(0).max() <= 1
    assert base.rank_margin == rank_margin(base.usual.counts.min()) and count == 600


def test_ranks_of_tied_scores_lie_in_their_middle():
    base = shapes_profile().baseline
    place = CHARTED_FEATURES.index("strange")  # one value for each class, and another for what is strange
    usual = base.ranked[place, 0]
    tied = (base.ranked[place] == usual).mean()
    scores = np.zeros((1, len(CHARTED_FEATURES)))
    scores[0, place] = usual
    assert tied > 0.1 and base.ranks(scores)[0, place] == pytest.approx(tied / 2)


def test_bets_on_fresh_pictures_gain_nothing_on_average(clean):
    table, _ = clean
    assert np.exp(table).mean(0).max() <= 1
    assert np.abs(table * FIXED_POINT_SCALE - np.rint(table * FIXED_POINT_SCALE)).max() == 0


@pytest.mark.parametrize("runs", [1, 20])
def test_hardly_a_clean_stream_ever_reaches_the_evidence_for_one_in_twenty(clean, runs):
    table, labels = clean
    rng, members = np.random.default_rng(runs), [np.flatnonzero(labels == one) for one in range(4)]
    found = []
    for _ in range(200):
        shown = rng.integers(0, 4, SIZE * STEPS // runs).repeat(runs)
        places = np.choose(shown, [rng.choice(one, len(shown)) for one in members])
        found.append(highest(table, places))
    assert (np.array(found) >= np.log(20)).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    assert np.max(found) > -2  # though it is not out of reach


def test_evidence_of_darker_pictures_passes_whatever_the_stream():
    table, _ = gains(8, lambda some: (some.float() * 0.8).round().byte())
    rng = np.random.default_rng(0)
    found = [highest(table, rng.integers(0, POOL, SIZE * STEPS)) for _ in range(10)]
    assert min(found) > np.log(20)
