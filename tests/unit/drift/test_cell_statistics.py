"""Statistics of a reference by condition and class, where a condition has few images of a class or none."""

import numpy as np

from equipoise.drift.charts.cell_statistics import fit_cell_statistics
from equipoise.drift.features.image_stats import STATISTIC_NAMES
from equipoise.drift.profiling.reference_examples import concat_conditions
from tests.support.drift_conditions import extract_features_in_any_light, render_light
from tests.support.drift_data import CLASSES


def test_class_missing_in_a_condition_is_expected_to_move_as_the_others_do():
    plain, warm = (
        extract_features_in_any_light(render_light(name, 400, seed)) for name, seed in (("plain", 1), ("warm", 3))
    )
    others = warm.select(np.flatnonzero(warm.predicted_classes != 2))
    missing = warm.select(np.flatnonzero(warm.predicted_classes == 2))
    truth, guess = (fit_cell_statistics(concat_conditions([plain, part]), CLASSES, 2) for part in (warm, others))
    cell, charted = CLASSES + 2, len(STATISTIC_NAMES)
    assert guess.counts[cell] == 0 and len(missing) > 50
    error, error_of_mean = (
        np.abs((mean - truth.mean[cell, :charted]) / truth.scale[cell, :charted]).mean()
        for mean in (guess.mean[cell, :charted], others.statistics[:, :charted].mean(0))
    )
    assert error < 0.5 * error_of_mean
    np.testing.assert_array_equal(guess.mean[:CLASSES], truth.mean[:CLASSES])
    assert np.linalg.norm(guess.waves[cell] - truth.waves[cell]) < np.linalg.norm(
        others.fourier_features.mean(0) - truth.waves[cell]
    )
