"""Contract of every drift detector: false-alarm rate, scores that grow with drift, independence of order and ties."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch

from equipoise.drift.charts.baseline import fit_baseline
from equipoise.drift.charts.betting_test import BettingTest
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.dataset_verdict import ALPHA, compute_dataset_verdict
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import LabelledOutputs, extract_features
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from tests.support.drift_data import CLASSES, render_shapes, score_shapes, shapes_profile

STEP_IMAGES, WINDOW_IMAGES = 16, 96
SHIFTS = (0.0, 0.3, 1.0)  # darker by this many stops, and the first class 1 + 2 * shift times as likely


def keep_continuous(features):
    return features


def round_to_ties(features):
    """Rectify and round features to few distinct values, about half of them zero."""
    return np.maximum(features - np.array([2.9, 3.2, 2.6, 2.6, 2.7, 2.5, 1.1, 0.9, 1.1], np.float32), 0).round(1)


@dataclass(frozen=True)
class ScoredImages:
    """Statistics, predicted classes and features of images, as arrays of equal length."""

    statistics: np.ndarray
    predicted_classes: np.ndarray
    features: np.ndarray

    def __getitem__(self, indices) -> "ScoredImages":
        return ScoredImages(self.statistics[indices], self.predicted_classes[indices], self.features[indices])


@cache
def score_images(count, seed, transform, shift=0.0) -> ScoredImages:
    images, labels = render_shapes(count, seed)
    images = (images.float() * 2 ** (-0.45 * shift)).round().to(torch.uint8)  # stops along the sRGB curve
    logits, features = (tensor.numpy() for tensor in score_shapes(images))
    extracted = extract_features(LabelledOutputs(images, logits, features, labels), lambda _: np.zeros((count, 1)), 1.0)
    return ScoredImages(extracted.statistics, extracted.predicted_classes, transform(features))


@cache
def build_reference(transform) -> tuple[ScoredImages, ReferenceProfile]:
    """Return reference images and a profile with a baseline fitted to them.

    The thresholds are those of the shared profile, whose features are not transformed.
    """
    images = score_images(600, 1, transform)
    random_features = fit_random_features(images.features)
    baseline = fit_baseline(
        ImageFeatures(images.statistics, images.predicted_classes, random_features(images.features)),
        CLASSES,
        random_features,
        1.0,
    )
    return images, replace(shapes_profile(), baseline=baseline)


def draw_window(seed, transform, shift=0.0) -> ScoredImages:
    """Draw a window of images apart from the reference; with a shift, darker and with more of the first class."""
    images = score_images(4000 if shift == 0 else 800, 7, transform, shift)
    weights = np.where(images.predicted_classes == 0, 1 + 2 * shift, 1.0)
    probabilities = weights / weights.sum()
    return images[np.random.default_rng(seed).choice(len(weights), WINDOW_IMAGES, False, probabilities)]


def iterate_step_sums(profile: ReferenceProfile, window: ScoredImages):
    """Yield the sums of each step of a window."""
    image_features = ImageFeatures(
        window.statistics, window.predicted_classes, profile.baseline.random_fourier(window.features)
    )
    for first in range(0, WINDOW_IMAGES, STEP_IMAGES):
        yield profile.baseline.sum_features(image_features.select([*range(first, first + STEP_IMAGES)]))


def run_stream_detector(seed, transform, window):
    """Run the stream detector at one false alarm in 200 windows; a single reference may be off by a factor."""
    profile = build_reference(transform)[1]
    detector, score = StreamDetector.start(profile, 200.0 * WINDOW_IMAGES), -np.inf
    for sums in iterate_step_sums(profile, window):
        detector.add_sums(sums, 0.0)
        score = max(score, float(detector.values().max()) - detector.threshold())
    return score, score >= 0


def run_betting_test(seed, transform, window):
    profile = build_reference(transform)[1]
    betting_test, score, layout = BettingTest.initial(len(IMAGE_SCHEMA)), -np.inf, profile.baseline.layout
    for sums in iterate_step_sums(profile, window):
        betting_test.update(layout.read_part(sums, "low"), layout.read_part(sums, "high"))
        score = max(score, betting_test.log_mean_wealth())
    return score, score >= np.log(20)


def run_dataset_verdict(seed, transform, window):
    images, profile = build_reference(transform)
    image_features = ImageFeatures(
        window.statistics, window.predicted_classes, profile.baseline.random_fourier(window.features)
    )
    verdict = compute_dataset_verdict(
        profile,
        image_features,
        window.features,
        images.features,
        images.predicted_classes,
        permutation_count=620,  # enough for p at the threshold, in a third of the time
    )
    # not the features chart, whose p-value depends on which permutations are drawn
    score = max(chart.value - chart.threshold for chart in verdict.charts if chart.name != "features")
    return score, verdict.state == "drift"


def draw_reference_sample(seed, transform):
    """Draw a reference of 300 images for two-sample tests, whose error rate holds on average over references."""
    images = score_images(4000, 8, transform)
    return images[np.random.default_rng(seed).choice(4000, 300, False)]


def run_mmd_test(seed, transform, window):
    result = mmd_permutation_test(draw_reference_sample(seed, transform).features, window.features, 99, seed)
    return result.statistic, result.p_value <= 0.05


def run_ks_test(seed, transform, window):
    result = ks_test_by_column(draw_reference_sample(seed, transform).features, window.features)
    return -np.log(result.p_value.min() + 1e-300), result.p_value.min() * len(result.p_value) <= 0.05


def run_chi_squared_test(seed, transform, window):
    counts = (
        np.bincount(images.predicted_classes, minlength=CLASSES)
        for images in (draw_reference_sample(seed, transform), window)
    )
    result = chi_squared_test(*counts)
    return result.statistic, result.p_value <= 0.05


@dataclass(frozen=True)
class DetectorCase:
    """Detector that must meet the contract."""

    run: Callable
    """maps (seed, feature transform, window) to a score that is higher with more drift, and whether it alarms"""
    max_false_alarm_rate: float
    """largest share of windows without drift that may raise an alarm"""
    num_windows: int = 100
    permute_within_steps: bool = False
    """whether the score ignores the order of images only within each step"""


DETECTOR_CASES = {
    "charts": DetectorCase(run_stream_detector, 0.02, 80, permute_within_steps=True),
    "betting-test": DetectorCase(run_betting_test, 0.05, permute_within_steps=True),
    "dataset-verdict": DetectorCase(run_dataset_verdict, ALPHA, 80),
    "mmd": DetectorCase(run_mmd_test, 0.05),
    "kolmogorov-smirnov": DetectorCase(run_ks_test, 0.05),
    "chi-squared": DetectorCase(run_chi_squared_test, 0.05),
}
for_each_detector = pytest.mark.parametrize("detector", DETECTOR_CASES.values(), ids=DETECTOR_CASES)


@pytest.mark.slow
@for_each_detector
@pytest.mark.parametrize("transform", [keep_continuous, round_to_ties])
def test_false_alarm_rate_is_kept_with_and_without_ties(detector, transform):
    alarms = [detector.run(seed, transform, draw_window(seed, transform))[1] for seed in range(detector.num_windows)]
    rate = detector.max_false_alarm_rate
    assert np.mean(alarms) <= rate + 2 * np.sqrt(rate * (1 - rate) / detector.num_windows)


@for_each_detector
def test_score_grows_with_shift_and_large_shifts_raise_alarms(detector):
    results = [
        [detector.run(seed, keep_continuous, draw_window(seed, keep_continuous, shift)) for seed in range(12)]
        for shift in SHIFTS
    ]
    medians = [np.median([score for score, _ in window_results]) for window_results in results]
    assert medians[0] < medians[1] < medians[2]
    assert np.mean([has_alarm for _, has_alarm in results[2]]) > 0.9


@for_each_detector
def test_score_does_not_depend_on_the_order_of_images(detector):
    rng, images = np.random.default_rng(0), draw_window(3, keep_continuous, 0.3)
    order = np.arange(WINDOW_IMAGES).reshape(-1, STEP_IMAGES)
    order = rng.permuted(order, axis=1).ravel() if detector.permute_within_steps else rng.permutation(WINDOW_IMAGES)
    order = order.astype(int)
    score, permuted_score = (detector.run(3, keep_continuous, window)[0] for window in (images, images[order]))
    assert (order != np.arange(WINDOW_IMAGES)).any() and score == pytest.approx(permuted_score, abs=1e-6, rel=1e-6)


def test_round_to_ties_gives_tied_features():
    features = build_reference(round_to_ties)[0].features
    assert 0.2 < (features == 0).mean() < 0.8 and all(len(np.unique(column)) < 60 for column in features.T)
