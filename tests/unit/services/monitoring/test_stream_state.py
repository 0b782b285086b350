"""State of a stream as its gauges show it."""

import numpy as np
import pytest

from equipoise.drift.detector import RECENT_IMAGES, StreamDetector
from services.monitoring.drift_replies import StreamState
from tests.support.drift_conditions import extract_features_in_any_light, render_light, two_lights_profile
from tests.support.quick_profile import build_quick_profile, sum_image_statistics

STEP_IMAGES = 32


def run_two_lights(*parts):
    """Return a detector that knows two lights and has observed the parts of a stream in order."""
    detector = StreamDetector.start(two_lights_profile(), 2000.0)
    for name, count in parts:
        features = extract_features_in_any_light(render_light(name, count, 60 + len(name)))
        for start in range(0, count, STEP_IMAGES):
            step = features.select(np.arange(start, start + STEP_IMAGES))
            detector.add_sums(detector.profile.baseline.sum_features(step), 0.0)
    return detector


def test_shares_of_conditions_are_those_of_the_latest_images():
    detector = run_two_lights(("plain", 512), ("warm", 64))
    shares = StreamState.from_detector(detector, 0).conditions
    assert [*shares] == ["as published", "warm"]
    assert shares["warm"] == pytest.approx(64 / RECENT_IMAGES, abs=0.03)
    assert sum(shares.values()) == pytest.approx(1)


def test_shares_of_a_short_stream_are_those_of_all_its_images():
    shares = StreamState.from_detector(run_two_lights(("plain", 32), ("warm", 32)), 0).conditions
    assert shares == pytest.approx({"as published": 0.5, "warm": 0.5}, abs=0.05)


def test_state_is_that_of_the_detector():
    detector = run_two_lights(("plain", 128))
    state = StreamState.from_detector(detector, 3)
    assert (state.drift, state.alarm_seconds, state.images, state.lost) == (False, None, 128, 3)
    assert (state.threshold, state.charts) == (detector.threshold(), detector.highest_by_name())
    darkened = extract_features_in_any_light((render_light("dark", 512, 3).float() * 0.5).byte())
    assert detector.add_sums(detector.profile.baseline.sum_features(darkened), 9.0)
    alarmed = StreamState.from_detector(detector, 3)
    assert (alarmed.drift, alarmed.alarm_seconds, alarmed.images) == (True, 9.0, 640)


def test_one_condition_has_no_share():
    detector = StreamDetector.start(build_quick_profile(), 2000.0)
    detector.add_sums(sum_image_statistics(render_light("plain", 64, 1)), 0.0)
    assert detector.observed_images == 64
    assert StreamState.from_detector(detector, 0).conditions == {}
