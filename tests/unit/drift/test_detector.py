import json

import msgspec
import numpy as np
import pytest
import torch

from dashboards.panels.drift import chart_history_figure, verdict_facts
from equipoise.drift.charts.chart_names import CLASS_AND_FEATURE_CHARTS, ChartNames
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import chart_history, compute_stream_verdict
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.images.camera import blackbody_gain
from tests.support.drift_data import CLASSES, COLOURS, render_shapes, shapes_profile
from tests.support.drift_streams import (
    RUN_LENGTH_IMAGES,
    STEP_IMAGES,
    apply_warm_light,
    feed_steps,
    render_clean_images,
    run_detector,
    sum_by_step,
)


def compute_checked_verdict(detector):
    """Return the verdict of a detector, after checking that it is JSON."""
    verdict = compute_stream_verdict(detector)
    assert StreamVerdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    return verdict


def render_with_class_shares(shares, count, seed=41):
    labels = np.random.default_rng(seed).choice(CLASSES, count, p=shares)
    return render_shapes(count, seed, labels)[0]


def render_with_new_class(count, interval, seed=42):
    """Render images of which one in `interval` has a colour that no class has."""
    images, labels = render_shapes(count, seed)
    colours = COLOURS.clone()
    COLOURS[:] = torch.tensor([[200.0, 60, 200]])
    try:
        new, _ = render_shapes(count, seed, labels)
    finally:
        COLOURS[:] = colours
    images[::interval] = new[::interval]
    return images


def test_images_like_the_reference_give_verdict_ok():
    verdict = compute_checked_verdict(run_detector(render_clean_images()))
    assert verdict.state == "ok" and verdict.images == verdict.looked_at == 1600
    assert verdict.cause is None and verdict.since is None and not verdict.effects
    assert verdict.accuracy.low < 0.998 < verdict.accuracy.high
    names = [chart.name for chart in verdict.charts]
    assert sorted(names) == sorted({*IMAGE_SCHEMA.names, *CLASS_AND_FEATURE_CHARTS})
    assert all(chart.value < chart.threshold for chart in verdict.charts)


@pytest.mark.parametrize("count", [0, STEP_IMAGES - 1, 64 - 1, 64])
def test_few_images_give_verdict_unknown(count):
    detector = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES)
    if count:
        feed_steps(detector, sum_by_step(render_clean_images(count), 1))
    verdict = compute_checked_verdict(detector)
    assert verdict.state == ("ok" if count >= 64 else "unknown")
    assert verdict.images == count
    if count < 64:
        assert verdict.accuracy == "unknown" and "64 are needed" in verdict.why


def test_verdict_that_no_image_led_to_counts_nothing():
    verdict = StreamVerdict(state="unknown", why="the reference has too few images")
    assert (verdict.images, verdict.looked_at, verdict.replicas) == (0, 0, 0)


def test_warmer_light_raises_one_alarm_with_its_cause_and_start():
    detector = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES)
    steps = [*sum_by_step(render_clean_images(960)), *sum_by_step(apply_warm_light(render_clean_images(640, 43)))]
    alarms = feed_steps(detector, steps, 1000.0)
    assert len(alarms) == 1 and 60 <= alarms[0] < 66
    verdict = compute_checked_verdict(detector)
    assert verdict.state == "drift" and verdict.cause == "colour temperature"
    assert verdict.since.images_ago == pytest.approx(640, rel=0.2)
    assert verdict.since.at.startswith("1970-01-01T00:17:") and verdict.since.at[-8:-6] in ("39", "40")
    assert verdict.since.alarm.image_number == (alarms[0] + 1) * STEP_IMAGES
    assert verdict.effects[0].value == pytest.approx(4500, rel=0.1)
    red_over_blue = next(chart for chart in verdict.charts if chart.name == "red over blue")
    red, _, blue = blackbody_gain(np.array([4500.0]))[0]
    assert red_over_blue.effect.value == pytest.approx(np.log2(red / blue), rel=0.1)


def test_strong_drift_raises_an_alarm_with_the_first_step_that_completes_enough_images():
    night = render_clean_images(256) // 8
    detector = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES)
    assert feed_steps(detector, sum_by_step(night)) == [64 // STEP_IMAGES - 1]
    assert detector.alarm.observed_images == 64


def test_alarm_ends_some_time_after_the_drift_and_can_be_raised_again():
    detector = run_detector(render_clean_images(320), apply_warm_light(render_clean_images(320, 44)))
    assert detector.alarm is not None
    feed_steps(detector, sum_by_step(render_clean_images(1600, 45)), 40.0)
    assert detector.alarm is None and compute_checked_verdict(detector).state == "ok"
    assert len(feed_steps(detector, sum_by_step(apply_warm_light(render_clean_images(320, 46))), 200.0)) == 1


def test_second_drift_is_dated_after_the_end_of_the_first_alarm():
    detector = run_detector(
        render_clean_images(800), apply_warm_light(render_clean_images(320, 50)), render_clean_images(3200, 51)
    )
    assert detector.alarm is None and detector.over > 1120
    feed_steps(detector, sum_by_step(apply_warm_light(render_clean_images(160, 52))))
    verdict = compute_checked_verdict(detector)
    assert verdict.state == "drift" and 100 <= verdict.since.images_ago <= 220


def test_chart_history_has_the_height_of_each_chart_after_each_step():
    detector = run_detector(render_clean_images(800), apply_warm_light(render_clean_images(160, 50)))
    history = chart_history(detector)
    assert (
        msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(history), allow_nan=False)), type=ChartHistory)
        == history
    )
    assert history.image_numbers == [STEP_IMAGES * (index + 1) for index in range(60)]
    red_over_blue = np.array(history.charts["red over blue"])
    assert red_over_blue[:50].max() < history.threshold[0] < red_over_blue[-1]
    assert history.charts.keys() == detector.highest_by_name().keys()
    assert {name: values[-1] for name, values in history.charts.items()} == pytest.approx(
        detector.highest_by_name(), abs=1e-2
    )


def test_charts_rise_to_twice_their_threshold_and_no_further():
    detector = run_detector(render_clean_images(320), apply_warm_light(render_clean_images(320, 44)))
    earlier_maximum = detector.values().max()
    feed_steps(detector, sum_by_step(apply_warm_light(render_clean_images(1600, 47))), 60.0)
    assert (
        detector.values()[: detector.chart_names.score_chart_count].max()
        <= 2.2 * detector.threshold() + earlier_maximum
    )


@pytest.mark.parametrize("missing_class", [0, 2])
def test_missing_class_is_label_shift(missing_class):
    shares = np.ones(CLASSES)
    shares[missing_class] = 0
    verdict = compute_checked_verdict(
        run_detector(render_clean_images(640, 48), render_with_class_shares(shares / shares.sum(), 640))
    )
    assert verdict.state == "drift" and verdict.cause == "label shift"
    assert verdict.since.images_ago == pytest.approx(640, rel=0.2)
    class_gone = next(chart for chart in verdict.charts if chart.name == "class gone")
    assert class_gone.effect.class_name == str(missing_class) and class_gone.effect.value < 0.02
    assert class_gone.effect.reference == pytest.approx(0.25, abs=0.05)


def test_more_frequent_class_is_label_shift():
    verdict = compute_checked_verdict(
        run_detector(render_clean_images(640, 48), render_with_class_shares([0.1, 0.1, 0.7, 0.1], 640))
    )
    assert verdict.state == "drift" and verdict.cause == "label shift"
    more_often = next(chart for chart in verdict.charts if chart.name == "class more often")
    assert more_often.effect.class_name == "2" and more_often.effect.low < 0.7 < more_often.effect.high


def test_new_class_among_known_ones_is_named():
    verdict = compute_checked_verdict(run_detector(render_clean_images(640, 49), render_with_new_class(640, 5)))
    assert verdict.state == "drift" and verdict.cause == "new class"
    assert verdict.since.images_ago == pytest.approx(640, rel=0.2)
    assert verdict.accuracy == "unknown"


def test_unobserved_images_count_as_answered():
    detector, layout = StreamDetector.start(shapes_profile(), RUN_LENGTH_IMAGES), shapes_profile().baseline.layout
    for row in sum_by_step(render_clean_images(320, 52)):
        detector.add_sums(row, 0.0)
        assert not detector.add_sums(layout.pack_unobserved(48), 0.0)
    verdict = compute_checked_verdict(detector)
    assert verdict.looked_at == 320 and verdict.images == 320 + 48 * 20
    for row in sum_by_step(apply_warm_light(render_clean_images(320, 53))):
        detector.add_sums(row + layout.pack_unobserved(48), 60.0)
    verdict = compute_checked_verdict(detector)
    assert verdict.state == "drift" and verdict.since.images_ago == pytest.approx(4 * 320, rel=0.2)
    alarm, history = verdict.since.alarm, chart_history(detector)
    heights = np.max([*history.charts.values()], 0)
    assert alarm.image_number == history.image_numbers[int((heights >= history.threshold).argmax())]
    facts, figure = verdict_facts(verdict), chart_history_figure(history, verdict)
    assert facts["change began"] == f"{verdict.since.images_ago:,} images ago"
    assert facts["alarm"] == f"at image number {alarm.image_number:,} of {verdict.images:,}"
    marks = {trace.name: trace.x[0] for trace in figure.data if trace.name in ("change began", "alarm")}
    assert marks == {"change began": verdict.images - verdict.since.images_ago, "alarm": alarm.image_number}
    assert figure.layout.xaxis.title.text.startswith("image number")


def test_chart_is_named_after_what_it_measures():
    names = ChartNames(IMAGE_SCHEMA.names)
    assert names.name_of(0) == names.name_of(len(IMAGE_SCHEMA)) == IMAGE_SCHEMA.names[0]
    assert [names.name_of(names.score_chart_count + index) for index in range(3)] == [
        "class gone",
        "class more often",
        "features",
    ]
    detector = run_detector(render_clean_images(160))
    highest = detector.highest_by_name()
    assert (
        set(highest) == {*IMAGE_SCHEMA.names, *CLASS_AND_FEATURE_CHARTS}
        and max(highest.values()) == detector.values().max()
    )


def test_verdict_on_any_strong_drift_is_json_with_a_reason():
    for transform in (
        lambda images: images // 4,
        lambda images: images * 0,
        lambda images: images * 0 + 255,
        lambda images: images.flip(1),
    ):
        verdict = compute_checked_verdict(
            run_detector(render_clean_images(160), transform(render_clean_images(320, 55)))
        )
        assert verdict.state == "drift" and verdict.why
