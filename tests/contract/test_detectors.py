"""What every detector of drift promises: its rate without drift, more for more, and no heed of order or ties."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from equipoise.drift.charts.baseline import CHARTED_FEATURES, ImageFeatures, fit_baseline
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis import dataset_verdict as folder
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from tests.support.drift_data import CLASSES, render_shapes, score_shapes, shapes_profile

STEP, COUNT = 16, 96  # pictures of a step, and of a window
SHIFTS = (0.0, 0.3, 1.0)  # darker by so many stops, and so much more of the first class


def smooth(features):
    return features


def tied(features):
    """Few values, and nothing at all for half of them: rectified, and rounded."""
    return np.maximum(features - np.array([2.9, 3.2, 2.6, 2.6, 2.7, 2.5, 1.1, 0.9, 1.1], np.float32), 0).round(1)


@dataclass(frozen=True)
class Some:
    """Pictures as a model answered them."""

    figures: np.ndarray
    classes: np.ndarray
    features: np.ndarray

    def __getitem__(self, places) -> "Some":
        return Some(self.figures[places], self.classes[places], self.features[places])


@cache
def answered(count, seed, ties, shift=0.0) -> Some:
    some, labels = render_shapes(count, seed)
    some = (some.float() * 2 ** (-0.45 * shift)).round().to(torch.uint8)  # stops along the sRGB curve
    logits, features = (one.numpy() for one in score_shapes(some))
    seen = extract_features(LabelledOutputs(some, logits, features, labels), lambda _: np.zeros((count, 1)), 1.0)
    return Some(seen.statistics, seen.predicted_classes, ties(features))


@cache
def reference(ties) -> tuple[Some, ReferenceProfile]:
    """Of the toy; with tied features it has means and scatter of its own, and the thresholds of all."""
    held = answered(600, 1, ties)
    directions = fit_random_features(held.features)
    base = fit_baseline(ImageFeatures(held.figures, held.classes, directions(held.features)), CLASSES, directions, 1.0)
    return held, replace(shapes_profile(), baseline=base)


def window(seed, ties, shift=0.0) -> Some:
    """Fresh pictures."""
    pool = answered(4000 if shift == 0 else 800, 7, ties, shift)
    weight = np.where(pool.classes == 0, 1 + 2 * shift, 1.0)
    return pool[np.random.default_rng(seed).choice(len(pool.classes), COUNT, False, weight / weight.sum())]


def steps(held: ReferenceProfile, some: Some):
    seen = ImageFeatures(some.figures, some.classes, held.baseline.random_fourier(some.features))
    for first in range(0, COUNT, STEP):
        yield held.baseline.sum_features(seen.select([*range(first, first + STEP)]))


def by_watch(seed, ties, some):
    """An alarm once in 200 such windows is asked for; a single reference may be off by a factor."""
    held = reference(ties)[1]
    watch, score = StreamDetector.start(held, 200.0 * COUNT), -np.inf
    for row in steps(held, some):
        watch.add_sums(row, 0.0)
        score = max(score, float(watch.values().max()) - watch.threshold())
    return score, score >= 0


def by_evidence(seed, ties, some):
    held = reference(ties)[1]
    evidence, score, layout = BettingTest.initial(len(CHARTED_FEATURES)), -np.inf, held.baseline.layout
    for row in steps(held, some):
        evidence.update(layout.read_part(row, "low"), layout.read_part(row, "high"))
        score = max(score, evidence.log_mean_wealth())
    return score, score >= np.log(20)


def by_folder(seed, ties, some):
    of, held = reference(ties)
    seen = ImageFeatures(some.figures, some.classes, held.baseline.random_fourier(some.features))
    found = folder.compute_dataset_verdict(held, seen, some.features, of.features, of.classes)
    score = max(one["value"] - one["threshold"] for one in found["charts"] if one["name"] != "features")
    return score, found["state"] == "drift"  # the features' p depends on which permutations are drawn


def other(seed, ties):
    """A reference of 300 for tests of two samples, which are right on average over references."""
    pool = answered(4000, 8, ties)
    return pool[np.random.default_rng(seed).choice(4000, 300, False)]


def by_discrepancy(seed, ties, some):
    found = mmd_permutation_test(other(seed, ties).features, some.features, 99, seed)
    return found.statistic, found.p_value <= 0.05


def by_kolmogorov(seed, ties, some):
    found = ks_test_by_column(other(seed, ties).features, some.features)
    return -np.log(found.p_value.min() + 1e-300), found.p_value.min() * len(found.p_value) <= 0.05


def by_shares(seed, ties, some):
    counts = (np.bincount(one.classes, minlength=CLASSES) for one in (other(seed, ties), some))
    found = chi_squared_test(*counts)
    return found.statistic, found.p_value <= 0.05


@dataclass(frozen=True)
class Detector:
    """One that is held to the contract."""

    judged: Callable
    """a seed, the kind of features and a window: a score that is higher with more drift, and whether it alarms"""
    rate: float
    """of clean windows that set off an alarm, at most"""
    windows: int = 100
    within: bool = False
    """whether order is nothing within steps only"""


DETECTORS = {
    "charts": Detector(by_watch, 0.02, 80, within=True),
    "evidence": Detector(by_evidence, 0.05, within=True),
    "folder": Detector(by_folder, folder.ALPHA, 80),
    "discrepancy": Detector(by_discrepancy, 0.05),
    "kolmogorov": Detector(by_kolmogorov, 0.05),
    "shares": Detector(by_shares, 0.05),
}
every = pytest.mark.parametrize("one", DETECTORS.values(), ids=DETECTORS)


@pytest.fixture(autouse=True)
def _few_permutations(monkeypatch):
    monkeypatch.setattr(folder, "PERMUTATION_COUNT", 620)  # enough for p at the threshold, in a third of the time


@every
@pytest.mark.parametrize("ties", [smooth, tied])
def test_clean_windows_set_off_no_more_alarms_than_was_asked_tied_or_not(one, ties):
    alarms = [one.judged(seed, ties, window(seed, ties))[1] for seed in range(one.windows)]
    assert np.mean(alarms) <= one.rate + 2 * np.sqrt(one.rate * (1 - one.rate) / one.windows)


@every
def test_the_more_a_window_has_shifted_the_higher_is_its_score_until_it_is_sure(one):
    found = [[one.judged(seed, smooth, window(seed, smooth, shift)) for seed in range(12)] for shift in SHIFTS]
    middle = [np.median([score for score, _ in of]) for of in found]
    assert middle[0] < middle[1] < middle[2]
    assert np.mean([alarm for _, alarm in found[2]]) > 0.9


@every
def test_order_is_nothing_to_a_score(one):
    rng, some = np.random.default_rng(0), window(3, smooth, 0.3)
    order = np.arange(COUNT).reshape(-1, STEP)
    order = (rng.permuted(order, axis=1).ravel() if one.within else rng.permutation(COUNT)).astype(int)
    score, again = (one.judged(3, smooth, each)[0] for each in (some, some[order]))
    assert (order != np.arange(COUNT)).any() and score == pytest.approx(again, abs=1e-6, rel=1e-6)


def test_tied_features_are_tied():
    features = reference(tied)[0].features
    assert 0.2 < (features == 0).mean() < 0.8 and all(len(np.unique(column)) < 60 for column in features.T)
