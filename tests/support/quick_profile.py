"""Drift profile of toy images that is built in little time, for tests that need its sums but not its verdicts."""

from functools import cache

import numpy as np
from torch import Tensor

from equipoise.drift.charts.baseline import fit_baseline
from equipoise.drift.charts.cusum import build_cusum_parameters, initial_cusum_state
from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import extract_features
from equipoise.drift.profiling.reference_examples import fit_label_statistics
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.reference.signatures import Signatures
from equipoise.drift.reference.simulated_streams import LabelledFeatures
from equipoise.drift.reference.thresholds import CLASS_RUN_LENGTHS, STEP_SIZES, Calibration
from tests.support.drift_data import CLASSES, label_shapes, score_shapes


@cache
def build_quick_profile(temperature: float = 1.0) -> ReferenceProfile:
    """Build the profile of 200 images; its thresholds are not calibrated, and no corruption was tried."""
    reference = label_shapes(200, seed=1)
    random_fourier = fit_random_features(reference.features)
    features = extract_features(reference, random_fourier, temperature)
    baseline = fit_baseline(features, CLASSES, random_fourier, temperature)
    fourier_count = baseline.layout.fourier_count
    charts = initial_cusum_state(build_cusum_parameters(baseline.usual), len(IMAGE_SCHEMA), fourier_count)
    tables = np.zeros((len(STEP_SIZES), len(CLASS_RUN_LENGTHS), charts.values().shape[1]))
    labelled = fit_label_statistics(LabelledFeatures(features, reference.labels), baseline.usual, CLASSES)
    calibration = Calibration(tables, tables + 1, tables[..., :1], tables[..., :1] + 1)
    return ReferenceProfile(
        baseline, calibration, Signatures.empty(len(IMAGE_SCHEMA)), labelled, tuple(map(str, range(CLASSES)))
    )


def sum_image_statistics(images: Tensor) -> FixedPointSums:
    """Sum the statistics of images as the model answers them."""
    logits, features = (output.numpy() for output in score_shapes(images))
    baseline = build_quick_profile().baseline
    return baseline.sum_features(baseline.extract_features(images.numpy(), logits, features))
