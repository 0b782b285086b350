"""Statistics of the same samples stay what they were."""

from dataclasses import astuple

import numpy as np

from equipoise.bundle.evaluation import evaluate_predictions, fit_temperature
from equipoise.drift.stats.density_ratio import estimate_density_ratio
from equipoise.drift.stats.label_shift import residual_shift_test
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from tests.support.recorded import assert_as_recorded
from tests.unit.drift.test_label_shift import NEW_PRIOR, OLD_PRIOR, compute_logits, draw_features, estimate_weights


def test_two_sample_tests_are_as_recorded():
    rng = np.random.default_rng(3)
    reference, window = rng.normal(0, 1, (90, 5)), rng.normal(0.15, 1.1, (47, 5))
    discrete = np.round(reference * 2), np.round(window * 2)
    grouped = mmd_permutation_test(reference, window, 200, group_size=4)
    counts = np.array([40, 30, 3, 2, 1, 0]), np.array([20, 30, 1, 1, 0, 0])
    values = {
        "kernel": astuple(mmd_permutation_test(reference, window, 500)),
        "kernel of groups": astuple(grouped),
        "columns": np.stack(astuple(ks_test_by_column(*discrete))),
        "counts": astuple(chi_squared_test(*counts)),
    }
    assert_as_recorded("two-sample-tests", values)


def test_importance_weights_are_as_recorded():
    reference, labels = draw_features(OLD_PRIOR, 300, 1)
    window, _ = draw_features(NEW_PRIOR, 200, 2, offset=0.2)
    ratio, shift = estimate_density_ratio(reference, window), estimate_weights(window)
    residual = residual_shift_test(reference, labels, shift.weights, window)
    values = {
        "density ratio": ratio.weights,
        "effective size": ratio.effective_sample_size,
        "class weights": shift.weights,
        "residual": astuple(residual),
    }
    assert_as_recorded("importance-weights", values, rtol=5e-3)


def test_evaluation_is_as_recorded():
    features, labels = draw_features(OLD_PRIOR, 400, 7)
    logits = compute_logits(features) * 1.7
    temperature = fit_temperature(logits, labels)
    evaluation = evaluate_predictions(logits, labels, list("abcd"), temperature)
    values = {
        "temperature": temperature,
        "accuracy": [evaluation.accuracy, *evaluation.by_class.values()],
        "calibration errors": [evaluation.calibration_error, evaluation.calibrated_error],
    }
    assert_as_recorded("evaluation", values)
