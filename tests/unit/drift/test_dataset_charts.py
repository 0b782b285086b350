"""Charts of a set of images against their closed forms, on a small profile."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2_contingency, norm

from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.diagnosis.dataset_findings import MeasuredError
from equipoise.drift.diagnosis.dataset_verdict import (
    ModelFeatures,
    class_share_chart,
    feature_chart,
    is_label_shift_sufficient,
    match_condition_shares,
    measure_reference_support,
    most_shifted_images,
    neg_log10_p,
    statistic_charts,
)
from equipoise.drift.diagnosis.stream_verdict import feature_reading
from equipoise.drift.diagnosis.verdict import DatasetVerdict, DriftOnset, StreamVerdict, parse_verdict, scalar_to_python
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.proportions import Z_95, wilson_interval
from tests.support.errors import raises_code
from tests.support.quick_profile import build_quick_profile

NAMES = IMAGE_SCHEMA.names


def build_window(counts=(30.0, 20.0, 40.0, 10.0), **scores):
    """Build a window with mean scores of statistics by name, `_` for a blank, and shifts of a tenth of them."""
    values = np.zeros(len(IMAGE_SCHEMA))
    for name, score in scores.items():
        values[NAMES.index(name.replace("_", " "))] = score
    return Window(build_quick_profile(), np.array(counts), values, values / 10)


def test_height_of_a_statistic_is_the_p_value_of_its_mean_and_the_threshold_is_divided_among_all():
    window = build_window(luminance=0.3, contrast=-0.5)
    charts = {chart.name: chart for chart in statistic_charts(window)}
    assert set(charts) == {*NAMES}
    for name, score in (("luminance", 0.3), ("contrast", -0.5), ("green", 0.0)):
        p = 2 * norm.sf(abs(score) * np.sqrt(window.effective_sample_size))
        assert charts[name].value == pytest.approx(-np.log10(p), abs=1e-9) and charts[name].value >= 0
        assert charts[name].threshold == pytest.approx(-np.log10(0.01 / 4 / len(NAMES)))


def test_effect_of_a_statistic_is_in_its_unit_with_an_interval():
    window = build_window(luminance=2.0, contrast=-3.0)
    for name, factor in (("luminance", 1 / np.log(2)), ("contrast", None)):
        index = NAMES.index(name)
        reading = feature_reading(window, index, 1.5, 4.0)
        middle = window.shifts[index]
        reach = Z_95 * window.scale[index] / np.sqrt(window.effective_sample_size)
        ends = np.array([middle, middle - reach, middle + reach])
        expected = ends * factor if factor else np.exp(ends)
        assert [reading.effect.value, reading.effect.low, reading.effect.high] == pytest.approx(expected)
        assert (reading.name, reading.value, reading.threshold) == (name, 1.5, 4.0)


def test_class_whose_share_moved_most_is_named():
    profile, window = build_quick_profile(), build_window((5.0, 20.0, 60.0, 15.0))
    usual = profile.baseline.usual.counts
    chart = class_share_chart(profile, window)
    index = int(np.abs(window.class_counts / 100 - usual / usual.sum()).argmax())
    share = float(window.class_counts[index] / 100)
    assert (chart.name, chart.effect.class_name, chart.effect.value) == ("classes", str(index), share)
    assert (chart.effect.low, chart.effect.high) == wilson_interval(share, 100)
    assert chart.effect.reference == pytest.approx(usual[index] / usual.sum())
    p = chi2_contingency(np.array([usual, window.class_counts]), correction=False).pvalue
    assert chart.value == pytest.approx(-np.log10(p)) and chart.threshold == pytest.approx(-np.log10(0.01 / 4))


def draw_features(count, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    return ModelFeatures(rng.integers(0, 2, count), rng.normal(shift, 1, (count, 3)))


def test_features_are_compared_from_thirty_images_on():
    reference = draw_features(200, 0)
    few = feature_chart(draw_features(29, 1, 3.0), reference, 2, 500)
    assert (few.value, few.effect) == (0.0, None)
    moved, usual = (feature_chart(draw_features(30, 1, shift), reference, 2, 500) for shift in (3.0, 0.0))
    assert moved.value == pytest.approx(np.log10(501)) and usual.value < 2
    assert few.threshold == moved.threshold == pytest.approx(-np.log10(0.01 / 4)) and moved.effect.value > 0.1


def test_features_are_compared_within_each_cell():
    reference, current = draw_features(300, 0), draw_features(60, 1)
    for features in (reference, current):
        features.values[features.cells == 1] += 20
    mostly_second = current.select(np.argsort(-current.cells)[:40])
    assert feature_chart(mostly_second, reference, 2, 200).value < 2


def test_label_shift_is_sufficient_where_the_features_of_each_class_are_as_before():
    reference = draw_features(300, 0)
    current = reference.select(np.arange(0, 300, 4))
    assert is_label_shift_sufficient(current, reference, 200)
    moved = ModelFeatures(current.cells, current.values + 2)
    assert not is_label_shift_sufficient(moved, reference, 200)
    assert is_label_shift_sufficient(moved.select(np.arange(29)), reference, 200)  # too few to tell
    of_three = ModelFeatures(np.arange(300) % 3, reference.values)
    without_last = of_three.select(np.flatnonzero(of_three.cells < 2))
    assert is_label_shift_sufficient(without_last, of_three, 200)


def test_support_is_measured_from_thirty_images_on():
    reference = draw_features(200, 0)
    assert measure_reference_support(draw_features(29, 1), reference) is None
    usual, moved = (measure_reference_support(draw_features(60, 1, shift), reference) for shift in (0.0, 4.0))
    assert usual.share > 0.8 and not usual.moved and moved.share < 0.5 * usual.share


def test_reference_is_thinned_to_the_mix_of_conditions():
    current = ModelFeatures(np.array([0] * 10 + [3] * 30 + [5] * 4), np.zeros((44, 1)))  # conditions 0, 1 and 2
    reference = ModelFeatures(np.array([1] * 100 + [2] * 90), np.arange(190.0)[:, None])
    kept, thinned = match_condition_shares(current, reference, 2)
    assert np.bincount(kept.cells).tolist() == [10, 0, 0, 30] and np.bincount(thinned.cells).tolist() == [0, 30, 90]
    assert thinned.values[0] == 0 and np.ptp(np.diff(thinned.values[:30, 0])) <= 1
    alone = ModelFeatures(np.array([0, 1]), np.zeros((2, 1)))
    assert match_condition_shares(alone, alone, 2) == (alone, alone)


def test_images_that_moved_most_come_first():
    profile = build_quick_profile()
    usual, window = profile.baseline.usual, build_window(luminance=1.0)
    statistics = np.tile(usual.mean[0, : IMAGE_SCHEMA.input_count + 2], (20, 1))
    order = np.random.default_rng(0).permutation(20)
    statistics[order, NAMES.index("luminance")] += np.linspace(0.19, 0, 20) * usual.scale[0, NAMES.index("luminance")]
    waves = np.tile(usual.waves[0], (20, 1))
    features = ImageFeatures(statistics, np.zeros(20, np.int64), waves)
    assert most_shifted_images(profile, features, window) == order[:12].tolist()


def test_small_p_values_are_finite_heights():
    assert neg_log10_p(1e-3) == pytest.approx(3) and neg_log10_p(0.0) == 300 and neg_log10_p(1.0) == 0


def test_measured_values_are_described_in_words():
    accuracy = MeasuredError(metric="accuracy", value=0.8766, published=0.9, examples=1234)
    assert accuracy.describe_values("rows") == "87.7% on 1,234 labelled rows, 90.0% on test when published"
    error = replace_metric(accuracy, "root mean squared error", 12.5, 10.0)
    assert error.describe_values("texts") == "12.5 on 1,234 labelled texts, 10 on test when published"


def replace_metric(measured, metric, value, published):
    return MeasuredError(metric=metric, value=value, published=published, examples=measured.examples)


def test_most_frequent_condition_is_described_where_several_are_known():
    verdict = DatasetVerdict(state="ok", kind="table", conditions={"a": 0.25, "b": 0.75}, condition="b")
    assert verdict.describe_condition() == "b (75% of the rows)"
    assert DatasetVerdict(state="ok", conditions={"a": 1.0}, condition="a").describe_condition() is None
    assert DatasetVerdict(state="ok", conditions={"a": 0.5, "b": 0.5}).describe_condition() is None


def test_verdict_is_read_as_that_of_a_stream_or_of_a_set():
    assert isinstance(parse_verdict({"state": "ok", "looked_at": 3}), StreamVerdict)
    assert isinstance(parse_verdict({"state": "ok", "since": None}), StreamVerdict)
    assert isinstance(parse_verdict({"state": "ok", "moved": ["a"]}), DatasetVerdict)
    for contents in ([], {"state": "fine"}, {"looked_at": 3}, {"state": "ok", "classes": {"a": -1}}):
        with raises_code("verdict-invalid", "cannot read x"):
            parse_verdict(contents, "cannot read x")


def test_onset_is_a_moment_with_a_time_zone():
    verdict = StreamVerdict(state="drift", since=DriftOnset(at="1970-01-01T01:00:05+01:00"))
    assert verdict.onset_seconds == 5 and StreamVerdict(state="ok").onset_seconds == 0
    assert DatasetVerdict(state="drift").onset_seconds == 0
    with raises_code("verdict-invalid"):
        parse_verdict({"state": "drift", "since": {"at": "1970-01-01T00:00:05"}})


def test_numbers_of_numpy_become_python_numbers():
    assert type(scalar_to_python(np.float64(1.5))) is float and scalar_to_python(np.int64(3)) == 3
    with pytest.raises(TypeError, match="set"):
        scalar_to_python(set())


def test_profile_of_one_condition_reports_its_share():
    profile = build_quick_profile()
    assert profile.share_by_name(np.array([5.0])) == {"as published": 1.0} and profile.share_by_name(np.zeros(1)) == {}
    names = replace(profile, condition_names=("day", "night", "day"))
    assert names.share_by_name(np.array([1.0, 2.0, 1.0])) == {"day": 0.5, "night": 0.5}
    assert profile.image_count == 200
