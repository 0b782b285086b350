"""The runner-up of a diagnosis: the cause that would explain most in place of the one named last."""

from dataclasses import replace

import pytest

from dashboards.panels.drift import causes_table
from equipoise.drift.adaptation.workload import CorruptionAmount, apply_corruptions
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.root_cause import ShiftExplanation, describe_close_runner_up, diagnose_window
from equipoise.drift.diagnosis.verdict import DatasetVerdict
from equipoise.drift.diagnosis.window import window_from_sums
from jobs.check import format_verdict_table
from tests.support.drift_data import extract_shape_features, render_shapes, score_shapes, shapes_profile

CHANGES = {
    "exposure": [CorruptionAmount("exposure", "darker", -1.0)],
    "blur": [CorruptionAmount("blur", "", 1.0)],
    "light and exposure": [
        CorruptionAmount("colour temperature", "warmer", 4000.0),
        CorruptionAmount("exposure", "darker", -1.0),
    ],
}
BEST = Effect("blur", "", "pixels", 1.0, 0.9, 1.1, 0.6, 0, 1.0)


def diagnose(changes, seed=500):
    images = apply_corruptions(render_shapes(100, seed)[0], changes)
    sums = shapes_profile().baseline.sum_features(extract_shape_features(images))
    return diagnose_window(window_from_sums(shapes_profile(), sums), False)


@pytest.mark.parametrize("name", CHANGES)
def test_runner_up_is_of_another_cause_and_explains_less(name):
    cause = diagnose(CHANGES[name])
    named = {effect.cause for effect in cause.effects}
    assert {change.cause for change in CHANGES[name]} <= named
    assert cause.runner_up.cause not in {*named, "features"}
    assert cause.runner_up.explained < cause.effects[-1].explained


def test_drift_without_a_named_cause_has_no_runner_up():
    assert diagnose([]).runner_up is None


@pytest.mark.parametrize(("share", "is_close"), [(0.55, True), (0.49, True), (0.47, False), (-0.2, False)])
def test_only_a_close_runner_up_is_part_of_the_reason(share, is_close):
    other = replace(BEST, cause="noise", value=5.0, unit="levels of 255", explained=share)
    text = describe_close_runner_up(ShiftExplanation((BEST,), None, other))
    assert text == (f" (noise 5 levels of 255 in its place would explain {share:.0%})" if is_close else "")
    assert describe_close_runner_up(ShiftExplanation((BEST,), None, None)) == ""


def test_verdict_page_and_table_have_the_runner_up():
    images = apply_corruptions(render_shapes(100, 500)[0], CHANGES["blur"])
    logits, features = (part.numpy() for part in score_shapes(images))
    reference = render_shapes(200, 1)[0]
    reference_logits, reference_features = (part.numpy() for part in score_shapes(reference))
    verdict = compute_dataset_verdict(
        shapes_profile(), extract_shape_features(images), features, reference_features, reference_logits.argmax(1)
    )
    assert (verdict.cause, verdict.runner_up.explained < verdict.effects[-1].explained) == ("blur", True)
    assert DatasetVerdict.from_json(verdict.to_json()) == verdict
    assert f"runner-up: {verdict.runner_up.cause} in place of" in format_verdict_table(verdict)
    assert causes_table(verdict).rows[-1][0] == f"{verdict.runner_up.cause} (runner-up)"
    assert len(causes_table(verdict).rows) == len(verdict.effects) + 1
    assert logits.shape == (100, len(shapes_profile().class_names))
