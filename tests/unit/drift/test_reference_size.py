"""A reference that is too small for the false-alarm rate asked for says so, with the rate that it supports."""

import math
import re

import numpy as np
import pytest
from scipy.stats import norm

from dashboards.panels.drift import build_drift_sections
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.reference.false_alarms import FalseAlarmCheck
from equipoise.drift.reference.reference_size import (
    CLOSE_FACTOR,
    LOG_RUN_LENGTH_SPREAD,
    MAX_SHORTFALL_FACTOR,
    count_needed_images,
    describe_false_alarm_rate,
    describe_small_reference,
    log_shortfall,
)
from equipoise.errors import EquipoiseError
from equipoise.formatting import capitalize_first
from jobs.publishing.model_card import render_model_card
from jobs.publishing.reference_arrays import find_false_alarm_rate, find_reference_warning
from tests.support.drift_data import shapes_profile
from tests.support.manifests import build_manifest

CHECK_IMAGES = 262144


def build_check(images_per_alarm, held_out):
    alarms = round(CHECK_IMAGES / images_per_alarm)
    return FalseAlarmCheck(2000.0, CHECK_IMAGES, alarms, held_out, alarms, 0.1)


def test_sentence_says_how_many_images_there_are_what_they_support_and_how_many_are_needed():
    sentence = describe_small_reference(120, build_check(421, 180))
    images, supported, asked, needed = (float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*", sentence))
    assert (images, asked) == (120, 100_000)
    assert supported == pytest.approx(100_000 * math.exp(-log_shortfall(120, build_check(421, 180), 1e5)), rel=0.05)
    assert supported < asked / MAX_SHORTFALL_FACTOR and images < needed < 2000
    assert sentence.count(".") == 0 and sentence.count(";") == 1


def test_reference_of_the_needed_size_is_not_warned_of():
    needed = count_needed_images(120, log_shortfall(120, None, 1e5))
    assert describe_small_reference(needed, None) is None
    assert describe_small_reference(needed - 2, None) is not None
    assert describe_small_reference(1000, build_check(1900, 1000)) is None


def test_many_false_alarms_on_many_held_out_images_are_warned_of_whatever_the_size():
    assert describe_small_reference(5000, build_check(2000, 5000)) is None
    assert describe_small_reference(5000, build_check(100, 5000)) is not None


def test_few_held_out_images_are_blamed_for_their_share_of_the_offset():
    shortfalls = [log_shortfall(1000, build_check(421, held_out), 1e5) for held_out in (100, 1000, 10**9)]
    assert shortfalls == sorted(shortfalls)
    # all of the offset is that of the reference: the height of the threshold is as much higher as its logarithm is
    assert shortfalls[-1] == pytest.approx(math.log(2000 / 421) * math.log(1e5 / 64) / math.log(2000 / 64), rel=0.01)


@pytest.mark.parametrize(("image_count", "run_length"), [(120, 1e5), (2000, 1e6)])
def test_nine_in_ten_references_keep_the_rate(image_count, run_length):
    spread = LOG_RUN_LENGTH_SPREAD * math.log(run_length / 64) / math.sqrt(image_count)  # of log(asked / realised)
    assert norm.cdf(log_shortfall(image_count, None, run_length) / spread) == pytest.approx(0.9)


def test_spread_is_that_measured_over_references_of_several_sizes():
    counts, images = np.array([20, 8, 5, 5, 5]), (120, 250, 500, 1000, 2000)
    measured = np.array([0.52, 0.27, 0.21, 0.23, 0.06])  # standard deviations of log(asked / realised) at 2,000
    predicted = np.array([log_shortfall(count, None, 2000.0) for count in images]) / norm.ppf(0.9)
    assert np.average((measured / predicted) ** 2, weights=counts) == pytest.approx(1, abs=0.1)


def test_warning_begins_above_three_times_the_false_alarms_asked_for():
    held_out = 10**9  # so that all of the offset counted is that of the reference
    offset = math.log(3) * math.log(2000 / 64) / math.log(1e5 / 64)
    for factor, is_warned in ((0.99, False), (1.01, True)):
        check = FalseAlarmCheck(2000.0, 1_000_000, round(500 * math.exp(offset * factor)), held_out, 500, 0.1)
        assert (describe_small_reference(100_000, check) is not None) == is_warned


def test_shortfall_grows_with_the_run_length_and_falls_with_the_root_of_the_size():
    assert log_shortfall(400, None, 1e5) == pytest.approx(log_shortfall(100, None, 1e5) / 2)
    assert log_shortfall(400, None, 1e6) > log_shortfall(400, None, 1e5)


def test_verdict_and_page_have_the_warning_for_the_run_length_that_the_service_asks_for():
    count = shapes_profile().image_count
    for run_length in (1e3, 1e9):
        detector = StreamDetector.start(shapes_profile(), run_length)
        verdict = compute_stream_verdict(detector)
        assert verdict.reference_warning == describe_small_reference(count, shapes_profile().verified, run_length)
        assert StreamVerdict.from_json(verdict.to_json()) == verdict
    assert verdict.reference_warning is not None
    notes = [part.text for part in build_drift_sections(verdict)[0].parts if part.kind == "note"]
    assert notes == [f"{capitalize_first(verdict.reference_warning)}."]


def test_publishing_finds_the_warning_in_the_arrays_of_the_bundle():
    arrays = {
        "drift.usual.counts": np.array([60.0, 60.0]),
        "drift.verified": np.array([2000.0, CHECK_IMAGES, 600, 180, 600, 0.1]),
    }
    assert find_reference_warning(arrays) == describe_small_reference(120, build_check(CHECK_IMAGES / 600, 180))
    assert find_reference_warning(shapes_profile().to_arrays()) == describe_small_reference(
        shapes_profile().image_count, shapes_profile().verified
    )
    assert "cannot detect drift: the reference has 60 images" in find_reference_warning(
        {"drift.why not": np.array("the reference has 60 images")}
    )


def test_rate_is_given_with_its_interval_and_the_size_that_keeps_it_close():
    check = build_check(CHECK_IMAGES / 600, 180)
    sentence = describe_false_alarm_rate(120, check)
    numbers = [float(text.replace(",", "")) for text in re.findall(r"\d[\d,.]*", sentence)]
    asked, realised, low, high, count, needed, factor, run_length = numbers
    assert (asked, run_length, factor, count) == (2000, 100_000, CLOSE_FACTOR, 120)
    estimate = check.estimate
    assert [realised, low, high] == pytest.approx([estimate.value, estimate.low, estimate.high], rel=0.05)
    assert log_shortfall(round(needed), None, 1e5) == pytest.approx(math.log(CLOSE_FACTOR), rel=0.03)
    assert find_false_alarm_rate({"drift.usual.counts": np.array([120.0])}) is None


def test_check_of_another_version_is_refused():
    with pytest.raises(EquipoiseError) as error:
        find_reference_warning({"drift.usual.counts": np.ones(3), "drift.verified": np.array([2000.0, 100, 1])})
    assert error.value.code == "reference-unusable"


def test_model_card_ends_with_the_warning():
    limits = render_model_card(build_manifest(), None, ["the drift reference has 120 images"]).partition("## Limits")[2]
    assert limits.endswith("\n\nThe drift reference has 120 images.\n")
    assert "reference has" not in render_model_card(build_manifest(), None)
