"""Several known conditions: images are compared with the nearest one, and any mix of them is no drift."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from equipoise.drift.charts.baseline import fit_baseline
from equipoise.drift.charts.cell_statistics import fit_class_statistics
from equipoise.drift.charts.conditions import MAX_ABS_DEVIATION, ConditionRule
from equipoise.drift.charts.cusum import build_cusum_parameters
from equipoise.drift.charts.sums import SumsLayout
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import chart_history, compute_stream_verdict
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.image_stats import STATISTIC_NAMES
from equipoise.drift.monitor.monitor import Monitor, Report
from equipoise.drift.monitor.report_ledger import Tick
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.profiling.build_profile import KnownCondition, build_profile_arrays, build_reference_profile
from equipoise.drift.profiling.reference_examples import concat_conditions
from equipoise.drift.reference.profile import profile_from_arrays, reference_to_arrays
from tests.support.drift_conditions import (
    apply_gains,
    blur,
    extract_features_in_any_light,
    label_condition,
    render_condition,
    render_light,
    render_mixed_lights,
    score_in_any_light,
    two_lights_profile,
)
from tests.support.drift_data import CLASSES, shapes_profile
from tests.support.errors import raises_code

RUN_LENGTH_IMAGES = 20_000.0  # images without drift per false alarm
STEP_IMAGES = 16


def sum_by_step(images, profile=None):
    """Return the sums of consecutive steps of images."""
    features = extract_features_in_any_light(images, profile)
    return [
        (profile or two_lights_profile()).baseline.sum_features(features.select(np.arange(first, first + STEP_IMAGES)))
        for first in range(0, len(features) - STEP_IMAGES + 1, STEP_IMAGES)
    ]


def run_detector(*parts, profile=None):
    """Return a detector that has observed the parts of a stream in order, one step per second."""
    detector = StreamDetector.start(profile or two_lights_profile(), RUN_LENGTH_IMAGES)
    for images in parts:
        for row in sum_by_step(images, profile):
            detector.add_sums(row, float(detector.observed_images))
    return detector


def compute_checked_verdict(detector):
    """Return the verdict of a detector, after checking that it is JSON and that shares add up to one."""
    verdict = compute_stream_verdict(detector)
    assert StreamVerdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    assert sum(verdict.conditions.values()) == pytest.approx(1)
    assert verdict.conditions[verdict.condition] == max(verdict.conditions.values())
    return verdict


def test_images_belong_to_the_condition_that_they_come_from():
    for index, name in enumerate(("plain", "warm")):
        conditions = extract_features_in_any_light(render_light(name, 500, 10)).conditions
        assert (conditions == index).mean() > 0.985


def test_rule_chooses_the_largest_likelihood_with_clipped_deviations():
    rng = np.random.default_rng(0)
    count, weights = len(STATISTIC_NAMES), np.where(np.char.startswith(STATISTIC_NAMES, "cell"), 0.25, 1)
    rule = ConditionRule(rng.normal(0, 0.3, (3, 2, count)), rng.uniform(0.5, 1, (3, 2, count)), weights)
    statistics, classes = rng.normal(0, 1, (200, count + 2)).astype(np.float32), rng.integers(0, 2, 200)
    expected = []
    for row, label in zip(statistics[:, :count].astype(float), classes, strict=True):
        mean, scale = rule.mean[:, label], rule.scale[:, label]
        deviations = np.clip(row - mean, -MAX_ABS_DEVIATION * scale, MAX_ABS_DEVIATION * scale)
        expected.append((norm.logpdf(deviations, 0, scale) @ weights).argmax())
    np.testing.assert_array_equal(rule.assign(statistics, classes), expected)
    assert len(set(expected)) == 3


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), replicas=st.sampled_from([1, 2, 4, 8]))
def test_sums_are_bit_equal_however_images_are_spread_over_replicas(seed, replicas):
    base, rng = two_lights_profile().baseline, np.random.default_rng(seed)
    features = extract_features_in_any_light(torch.cat([render_light("plain", 40, 4), render_light("warm", 24, 5)]))
    owner, total = rng.integers(0, replicas, 64), base.layout.empty_row()
    for replica in rng.permutation(replicas):
        part = features.select(rng.permutation(np.flatnonzero(owner == replica)))
        if len(part):
            assigned = base.assign_conditions(replace(part, conditions=None))  # each replica assigns its images itself
            np.testing.assert_array_equal(assigned.conditions, part.conditions)
            total = total + base.sum_features(assigned)
    np.testing.assert_array_equal(total, base.sum_features(features))
    np.testing.assert_allclose(base.layout.read_condition_counts(total), [40, 24], atol=3)


def test_counts_are_read_by_class_and_by_condition():
    layout = SumsLayout(class_count=3, statistic_count=1, fourier_count=1, condition_count=2)
    row = layout.empty_row()
    row[layout.slices["cells"]] = [1, 2, 3, 10, 20, 30]
    assert len(row) == layout.row_length == 1 + 6 + 4 + 1
    assert layout.read_class_counts(row).tolist() == [11, 22, 33]
    assert layout.read_condition_counts(np.stack([row, 2 * row])).tolist() == [[6, 60], [12, 120]]


@pytest.mark.parametrize("mix", [(30, 10), (1, 99), (50, 0)])
def test_reference_counts_of_a_window_have_its_mix_of_conditions(mix):
    profile = two_lights_profile()
    reference = profile.baseline.usual.counts.reshape(2, -1)
    counts = np.zeros_like(reference)
    counts[:, 0] = mix
    window = Window(profile, counts.ravel(), np.zeros(1), np.zeros(1))
    expected = np.array(mix) / reference.sum(1) @ reference
    np.testing.assert_allclose(
        window.reference_class_counts / window.reference_class_counts.sum(), expected / expected.sum(), rtol=1e-9
    )
    assert window.reference_class_counts.sum() <= reference.sum() * (1 + 1e-9)


def test_any_mix_of_known_conditions_is_no_drift():
    detector = run_detector(render_light("plain", 800, 20), render_light("warm", 800, 21), render_mixed_lights(800, 22))
    verdict = compute_checked_verdict(detector)
    assert verdict.state == "ok" and detector.over == 0
    assert verdict.conditions.keys() == {"as published", "warm"}
    assert verdict.conditions["warm"] == pytest.approx(0.5, abs=0.1)
    assert sum(verdict.classes.values()) == 2400 and verdict.classes.keys() == {*map(str, range(CLASSES))}
    assert sum(verdict.usual.values()) == 1000


def test_unknown_light_is_drift_where_one_condition_is_known():
    one_light = build_reference_profile(
        score_in_any_light, label_condition("plain", 300, 1), 1.0, corrupted_image_count=32
    )
    detector = run_detector(render_light("plain", 320, 20), render_light("warm", 160, 21), profile=one_light)
    verdict = compute_checked_verdict(detector)
    assert (verdict.state, verdict.condition, verdict.conditions) == ("drift", "as published", {"as published": 1.0})
    assert not chart_history(detector).conditions


@pytest.mark.parametrize(("name", "condition"), [("plain", "as published"), ("warm", "warm")])
def test_further_change_of_either_condition_is_found_and_named(name, condition):
    detector = run_detector(render_light(name, 640, 30), blur(render_light(name, 320, 31)))
    verdict = compute_checked_verdict(detector)
    assert (verdict.state, verdict.cause, verdict.condition) == ("drift", "blur", condition)
    assert verdict.conditions[condition] > 0.95
    assert 640 < verdict.since.alarm.image_number <= 640 + 100
    assert verdict.since.images_ago == pytest.approx(320, rel=0.2)


def test_cause_is_relative_to_the_nearest_condition():
    darker = apply_gains(render_light("warm", 320, 32), (0.8, 0.8, 0.8))
    verdict = compute_checked_verdict(run_detector(render_light("warm", 320, 33), darker))
    assert (verdict.state, verdict.cause) == ("drift", "exposure") and verdict.condition == "warm"


def test_missing_class_is_found_under_mixed_conditions():
    images, labels = render_condition("warm", 1600, 34)
    verdict = compute_checked_verdict(run_detector(render_mixed_lights(640, 35), images[labels != 2]))
    assert (verdict.state, verdict.cause) == ("drift", "label shift")
    class_gone = next(chart for chart in verdict.charts if chart.name == "class gone")
    assert class_gone.effect.class_name == "2" and class_gone.effect.reference == pytest.approx(0.25, abs=0.05)


def test_chart_history_has_the_share_of_each_condition_in_each_step():
    history = chart_history(run_detector(render_light("plain", 160, 36), render_light("warm", 320, 37)))
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(history))), type=ChartHistory) == history
    published, warm = (np.array(history.conditions[name]) for name in ("as published", "warm"))
    assert len(published) == len(history.threshold) == 30
    np.testing.assert_allclose(published + warm, 1)
    assert published[:10].mean() > 0.95 and warm[10:].mean() > 0.95


def test_shares_in_a_history_have_three_decimals():
    shares = np.array(chart_history(run_detector(render_mixed_lights(320, 39))).conditions["warm"])
    assert not np.array_equal(shares, shares.round(2)) and np.array_equal(shares, shares.round(3))


def test_conditions_of_one_name_are_reported_as_one():
    profile = replace(two_lights_profile(), condition_names=("as published", "as published"))
    verdict = compute_stream_verdict(run_detector(render_mixed_lights(320, 38), profile=profile))
    assert verdict.conditions == {"as published": 1.0} and verdict.condition == "as published"


def test_accuracy_is_that_of_the_conditions_shown():
    profile = two_lights_profile()
    accuracy = replace(profile.condition_accuracy, labelled=np.array([600, 400]), correct=np.array([600, 300]))
    profile = replace(profile, condition_accuracy=accuracy)
    for images, expected in (
        (render_light("plain", 320, 39), 1.0),
        (render_light("warm", 320, 39), 0.75),
        (torch.cat([render_light("plain", 160, 39), render_light("warm", 160, 40)]), 0.875),
    ):
        verdict = compute_stream_verdict(run_detector(images, profile=profile))
        assert verdict.accuracy.value == pytest.approx(expected, abs=0.01)
        assert verdict.accuracy.low < verdict.accuracy.value <= verdict.accuracy.high + 1e-9
    unlabelled = replace(profile, condition_accuracy=replace(accuracy, labelled=np.array([600, 0])))
    assert compute_stream_verdict(run_detector(render_light("warm", 320, 39), profile=unlabelled)).accuracy == "unknown"


def test_profile_counts_labelled_images_by_condition():
    accuracy = two_lights_profile().condition_accuracy
    assert accuracy.labelled.tolist() == [600, 400] and (accuracy.correct >= 0.95 * accuracy.labelled).all()
    assert shapes_profile().condition_accuracy is None and shapes_profile().condition_names == ("as published",)


def test_stored_profile_gives_bit_equal_sums_and_the_same_verdict(tmp_path):
    np.savez(tmp_path / "reference.npz", **two_lights_profile().to_arrays())
    with np.load(tmp_path / "reference.npz", allow_pickle=False) as file:
        profile = profile_from_arrays(dict(file), [*"0123"], 9)
    assert profile.condition_names == ("as published", "warm")
    images = render_mixed_lights(320, 41)
    np.testing.assert_array_equal(sum_by_step(images, profile), sum_by_step(images))
    verdicts = [compute_stream_verdict(run_detector(images, profile=stored)) for stored in (profile, None)]
    assert verdicts[0] == verdicts[1]
    for name, value in two_lights_profile().to_arrays().items():
        np.testing.assert_array_equal(profile.to_arrays()[name], value, name)


@pytest.mark.parametrize("names", [("as published",), ("as published", "warm", "dark")])
def test_names_that_do_not_fit_the_statistics_are_refused(names):
    arrays = two_lights_profile().to_arrays() | {"drift.condition names": np.array(names)}
    with raises_code("reference-unusable", f"names {len(names)} conditions", "8 pairs", "publish the bundle again"):
        profile_from_arrays(arrays, [*"0123"], 9)


def test_condition_of_few_images_is_refused():
    few = KnownCondition("warm", label_condition("warm", 60, 3))
    arrays = build_profile_arrays(score_in_any_light, label_condition("plain", 300, 1), 1.0, conditions=[few])
    assert str(arrays["drift.why not"]).startswith("the condition 'warm' has 60 images; at least 100 are needed")


def test_condition_to_which_few_images_are_nearest_is_refused():
    """A condition that is inside of another one is not its own."""
    features = extract_features_in_any_light(render_light("plain", 600, 1), shapes_profile())
    few = features.select(np.arange(110))
    scattered = replace(few, statistics=few.statistics + np.where(np.arange(110) % 5, 0, 4)[:, None])
    with raises_code("reference-unusable", "the condition 'b' is nearest to", "images", "at least 100"):
        fit_baseline(
            concat_conditions([features, scattered]), CLASSES, two_lights_profile().baseline.random_fourier, 1.0, "ab"
        )


def test_charts_allow_for_the_sampling_error_of_the_smallest_condition():
    features = extract_features_in_any_light(render_light("plain", 600, 1), shapes_profile())
    large = fit_class_statistics(features, CLASSES)
    counts = np.concatenate([large.counts, large.counts / 4])
    both = build_cusum_parameters(replace(large, counts=counts), condition_count=2)
    small = build_cusum_parameters(replace(large, counts=large.counts / 4))
    for run_length in (1.0, 20.0, 1000.0):
        allowance = both.allowance(np.array([run_length]))
        np.testing.assert_allclose(allowance, small.allowance(np.array([run_length])))
        assert (allowance > build_cusum_parameters(large).allowance(np.array([run_length]))).all()
    np.testing.assert_allclose(both.class_shares, large.counts / large.counts.sum(), atol=1e-3)


def test_restored_detector_continues_bit_equal():
    detector = run_detector(render_mixed_lights(320, 42))
    restored = StreamDetector.start(two_lights_profile(), RUN_LENGTH_IMAGES)
    restored.restore(detector.state_arrays())
    for row in sum_by_step(blur(render_mixed_lights(160, 43))):
        assert detector.add_sums(row, 100.0) == restored.add_sums(row, 100.0)
    assert compute_stream_verdict(detector) == compute_stream_verdict(restored)
    for name, value in detector.state_arrays().items():
        np.testing.assert_array_equal(restored.state_arrays()[name], value, name)


def test_state_of_another_number_of_conditions_is_refused():
    state = run_detector(render_mixed_lights(160, 44)).state_arrays()
    with raises_code("state-invalid"):
        StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES).restore(state)


def test_monitor_counts_requests_of_known_conditions_and_loses_the_state_of_another_number(tmp_path):
    stream = StreamKey("toy", "1")
    monitor = Monitor(tmp_path, RUN_LENGTH_IMAGES, entries_per_snapshot=4)
    monitor.register(stream, reference_to_arrays(two_lights_profile()))
    rows = sum_by_step(torch.cat([render_light("plain", 64, 45), render_light("warm", 192, 46)]))
    for number, row in enumerate(rows, 1):
        monitor.submit_report(Report("a", number, [Tick(number, number, {stream: row})]), float(number))
    verdict = monitor.compute_verdict(stream)
    assert (verdict.state, verdict.condition) == ("ok", "warm")
    assert verdict.conditions["warm"] == pytest.approx(0.75, abs=0.02)
    assert Monitor(tmp_path, RUN_LENGTH_IMAGES).compute_verdict(stream).conditions == verdict.conditions
    monitor.register(stream, reference_to_arrays(shapes_profile()))
    restarted = Monitor(tmp_path, RUN_LENGTH_IMAGES)
    assert [event.event for event in restarted.events] == ["state lost"] and not restarted.detectors
