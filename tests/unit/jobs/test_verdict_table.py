"""Text of a verdict, as `jobs.check` prints it."""

import numpy as np

from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.verdict import ChartReading, DatasetVerdict
from jobs.checking.verdict_table import format_verdict_table
from tests.support.drift_conditions import (
    extract_features_in_any_light,
    label_condition,
    render_light,
    score_in_any_light,
    two_lights_profile,
)


def test_condition_of_the_images_is_printed_with_its_share():
    images, reference = render_light("warm", 100, 60), label_condition("plain", 200, 1)
    verdict = compute_dataset_verdict(
        two_lights_profile(),
        extract_features_in_any_light(images),
        score_in_any_light(images)[1].numpy(),
        reference.features,
        np.asarray(reference.logits.argmax(1)),
        permutation_count=620,
    )
    state, condition, *_ = format_verdict_table(verdict).splitlines()
    assert state == "ok: 100 images look like the reference"
    assert condition == "condition: warm (100% of the images)"


def test_most_frequent_condition_is_printed():
    verdict = DatasetVerdict(
        state="drift", why="darker", conditions={"as published": 0.4, "warm": 0.6}, condition="warm"
    )
    assert format_verdict_table(verdict).splitlines()[:2] == ["drift: darker", "condition: warm (60% of the images)"]


def test_one_condition_is_not_printed():
    for conditions in ({}, {"as published": 1.0}):
        verdict = DatasetVerdict(state="ok", why="fine", conditions=conditions, condition=next(iter(conditions), None))
        assert "condition" not in format_verdict_table(verdict)


def test_value_that_rounds_to_zero_has_no_sign():
    reading = ChartReading(name="brightness", value=-0.01, threshold=9, effect=None)
    table = format_verdict_table(DatasetVerdict(state="ok", why="fine", charts=[reading]))
    assert table.splitlines()[-1].split() == ["brightness", "0.0", "9.0"]
