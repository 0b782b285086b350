"""The step at which a change began, and the numbers of a window, for sums that are set by hand."""

from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.detector import Alarm, StreamDetector
from equipoise.drift.diagnosis.stream_verdict import (
    describe_onset,
    explain_state,
    find_silent_charts,
    most_frequent,
    name_counts,
)
from equipoise.drift.diagnosis.window import Window, find_change_step, most_likely_change_step, window_from_sums
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from tests.support.quick_profile import build_quick_profile

STEPS, STEP_IMAGES = 10, 16


def test_change_begins_where_scores_lie_farthest_along_their_mean():
    scores = np.zeros((8, 2))
    scores[5:] = [[3.0, 0.0]] * 3
    sizes, weights = np.full(8, 16.0), np.ones(2)
    for first in range(8):
        assert most_likely_change_step(scores, sizes, first, weights) == 5
    scores[2:5, 1] = 30.0  # in a column that does not count
    assert most_likely_change_step(scores, sizes, 0, np.array([1.0, 0.0])) == 5
    assert most_likely_change_step(np.zeros((4, 2)), np.full(4, 16.0), 2, weights) == 0


def test_small_steps_weigh_less_in_the_search_for_the_change():
    scores = np.array([[0.0], [2.0], [4.0]])
    heights = [6.0**2 / 64, 6.0**2 / 32, 4.0**2 / 16]  # of sums from each step on, over the images
    assert most_likely_change_step(scores, np.array([32.0, 16.0, 16.0]), 1, np.ones(1)) == int(np.argmax(heights)) == 1
    assert most_likely_change_step(scores, np.array([32.0, 28.0, 4.0]), 1, np.ones(1)) == 2


def build_detector(change_step, chart_name="luminance", **changes):
    """Build a detector that remembers ten steps, in which one score moved at a step, with an alarm of a chart."""
    profile = build_quick_profile()
    detector, layout = StreamDetector.start(profile, 2000.0), profile.baseline.layout
    rows = np.zeros((STEPS, detector.rows.shape[1]), np.int64)
    rows[:, layout.slices["all"]] = STEP_IMAGES + 4  # four of twenty are not observed
    rows[:, layout.slices["cells"].start] = STEP_IMAGES
    rows[change_step:, layout.slices["scores"].start + IMAGE_SCHEMA.names.index("luminance")] = 20 << 24
    names = detector.chart_names
    chart = next(index for index in range(len(detector.values())) if names.name_of(index) == chart_name)
    detector.rows, detector.ends = rows, np.arange(1, STEPS + 1) * STEP_IMAGES
    detector.asked, detector.times = np.arange(1, STEPS + 1) * (STEP_IMAGES + 4), 1000.0 + np.arange(STEPS)
    detector.alarm = Alarm(STEPS * STEP_IMAGES, STEPS * (STEP_IMAGES + 4), 1009.0, chart)
    for name, value in changes.items():
        setattr(detector, name, value)
    return detector


@pytest.mark.parametrize("step", [0, 3, 9])
def test_change_is_found_from_the_scores_of_the_steps(step):
    assert find_change_step(build_detector(step)) == step
    assert find_change_step(build_detector(step, "features")) == step
    assert find_change_step(build_detector(step, alarm=None)) == 0


@pytest.mark.parametrize("over", [0, 15, 16, 100, 160, 500])
def test_change_began_after_the_alarm_before_it_was_over(over):
    first_allowed = min(over // STEP_IMAGES, STEPS - 1)
    assert find_change_step(build_detector(2, over=over)) == max(2, first_allowed)


@pytest.mark.parametrize("images", [0, 16, 80, 144])
def test_change_of_a_class_began_after_its_chart_was_last_at_zero(images):
    detector = build_detector(0, "class more often")
    detector.charts.classes[0, 1] = [1.0, 5.0, 2.0, 0.0]
    first = detector.chart_names.score_chart_count
    class_count = detector.charts.classes.shape[2]
    detector.zero[:] = 160
    detector.zero[first + class_count + 1] = images  # of the class whose chart is highest
    assert find_change_step(detector) == images // STEP_IMAGES


def test_onset_counts_answered_images_and_has_the_time_before_its_step():
    onset = describe_onset(build_detector(4), 4)
    assert onset.images_ago == 6 * 20 and onset.at == "1970-01-01T00:16:43+00:00"
    assert (onset.alarm.image_number, onset.alarm.at, onset.alarm.chart) == (
        200,
        "1970-01-01T00:16:49+00:00",
        "luminance",
    )
    whole = describe_onset(build_detector(0), 0)
    assert whole.images_ago == 200 and whole.at == "1970-01-01T00:16:40+00:00"
    pending = build_detector(4)
    pending.pending[pending.profile.baseline.layout.slices["all"]] = 7
    assert describe_onset(pending, 4).images_ago == 6 * 20 + 7


def test_state_is_explained_in_a_sentence():
    few = build_detector(0, alarm=None, ends=np.array([63]))
    assert explain_state(few, "unknown", None) == "63 images were observed; at least 64 are needed"
    assert explain_state(build_detector(0, alarm=None), "ok", None) == "160 images look like the reference"


def test_window_holds_means_over_its_images():
    detector = build_detector(0)
    layout, window = detector.profile.baseline.layout, window_from_sums(detector.profile, detector.rows.sum(0))
    assert window.image_count == 160 and window.class_counts.tolist() == [160, 0, 0, 0]
    assert window.scores[IMAGE_SCHEMA.names.index("luminance")] == pytest.approx(20 / 16)
    empty = window_from_sums(detector.profile, layout.empty_row())
    assert empty.image_count == 0 and not empty.scores.any() and empty.effective_sample_size == 1


def test_effective_sample_size_counts_the_reference_of_each_class():
    profile = build_quick_profile()
    zeros = np.zeros(len(IMAGE_SCHEMA))
    counts = np.array([30.0, 10.0, 0.0, 0.0])
    expected = 1 / (1 / 40 + (0.75**2 / profile.baseline.usual.counts[0] + 0.25**2 / profile.baseline.usual.counts[1]))
    window = Window(profile, counts, zeros, zeros)
    assert window.effective_sample_size == pytest.approx(expected)
    scale = profile.baseline.usual.scale
    assert window.scale == pytest.approx(np.sqrt(0.75 * scale[0] ** 2 + 0.25 * scale[1] ** 2))


def test_names_go_with_their_counts():
    profile = build_quick_profile()
    assert name_counts(profile, np.array([3.0, 0.0, 7.0, 1.0])) == {"0": 3, "1": 0, "2": 7, "3": 1}
    assert most_frequent({"a": 0.2, "b": 0.5, "c": 0.3}) == "b" and most_frequent({}) is None


def test_charts_that_never_move_are_silent():
    profile = build_quick_profile()
    layout = profile.baseline.layout
    without_features = replace(profile, baseline=replace(profile.baseline, layout=replace(layout, fourier_count=0)))
    assert find_silent_charts(profile) == set()
    assert find_silent_charts(without_features) == {"features", "distance", "strange"}
    assert find_silent_charts(replace(profile, class_names=("all",))) == {"class gone", "class more often"}
