"""Verdicts on sets of images against a reference of several conditions."""

import json

import numpy as np
import pytest
import torch

from equipoise.drift.diagnosis.dataset_verdict import ModelFeatures, compute_dataset_verdict, match_condition_shares
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from tests.support.drift_conditions import (
    apply_gains,
    extract_features_in_any_light,
    label_condition,
    render_light,
    score_in_any_light,
    two_lights_profile,
)


@pytest.fixture(scope="module")
def reference():
    """Return the model features, predicted classes and conditions of the reference images."""
    groups = label_condition("plain", 600, 1), label_condition("warm", 400, 3)
    images = torch.cat([group.pictures for group in groups])
    features, logits = (np.concatenate([getattr(group, name) for group in groups]) for name in ("features", "logits"))
    return features, logits.argmax(1), extract_features_in_any_light(images).conditions


def compute_checked_verdict(images, reference_features, reference_predictions, reference_conditions):
    verdict = compute_dataset_verdict(
        two_lights_profile(),
        extract_features_in_any_light(images),
        score_in_any_light(images)[1].numpy(),
        reference_features,
        reference_predictions,
        permutation_count=620,
        reference_conditions=reference_conditions,
    )
    assert DatasetVerdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    return verdict


def render_lights(plain_count, warm_count, seed=60):
    return torch.cat([render_light("plain", plain_count, seed), render_light("warm", warm_count, seed + 1)])


@pytest.mark.parametrize(("plain_count", "warm_count"), [(100, 0), (0, 100), (60, 40), (10, 150)])
def test_any_mix_of_known_conditions_is_no_drift(reference, plain_count, warm_count):
    verdict = compute_checked_verdict(render_lights(plain_count, warm_count), *reference)
    assert verdict.state == "ok" and verdict.support is None
    assert verdict.conditions["warm"] == pytest.approx(warm_count / (plain_count + warm_count), abs=0.04)
    assert verdict.condition == ("warm" if warm_count > plain_count else "as published")
    assert sum(verdict.classes.values()) == plain_count + warm_count


@pytest.mark.parametrize(("plain_count", "warm_count"), [(100, 0), (0, 100), (60, 40)])
def test_change_of_any_condition_is_found_and_named(reference, plain_count, warm_count):
    darker = apply_gains(render_lights(plain_count, warm_count), (0.8, 0.8, 0.8))
    verdict = compute_checked_verdict(darker, *reference)
    assert (verdict.state, verdict.cause) == ("drift", "exposure")
    assert 0 < verdict.support.share <= 1 and len(verdict.moved) == 12


def test_images_of_a_condition_without_reference_features_are_judged_by_their_statistics_alone(reference):
    features, predictions = (part[:600] for part in reference[:2])
    for images in (render_lights(0, 100), render_lights(100, 40)):
        assert compute_checked_verdict(images, features, predictions, None).state == "ok"
    verdict = compute_checked_verdict(apply_gains(render_lights(0, 100), (0.8, 0.8, 0.8)), features, predictions, None)
    assert (verdict.state, verdict.cause, verdict.support) == ("drift", "exposure", None)
    assert next(chart.value for chart in verdict.charts if chart.name == "features") == 0


def test_reference_images_are_left_out_until_conditions_have_the_same_shares():
    cells, class_count = np.repeat([0, 1, 2, 3, 4], [30, 30, 90, 30, 20]), 2
    reference = ModelFeatures(cells, np.arange(200.0)[:, None])
    current = ModelFeatures(np.repeat([1, 3], [10, 30]), np.zeros((40, 1)))
    kept, matched = match_condition_shares(current, reference, class_count)
    assert len(kept.cells) == 40
    assert np.bincount(matched.cells // class_count).tolist() == [40, 120]  # a quarter, and three
    np.testing.assert_array_equal(cells[matched.values[:, 0].astype(int)], matched.cells)
    unknown = ModelFeatures(np.repeat([1, 7], [10, 30]), np.arange(40.0)[:, None])
    kept, matched = match_condition_shares(unknown, reference, class_count)
    assert kept.values[:, 0].tolist() == [*range(10)] and np.bincount(matched.cells).tolist() == [30, 30]
