import json

import numpy as np
import pytest
import torch

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.charts.cusum import MIN_STREAM_IMAGES
from equipoise.drift.detector import (
    CLASS_AND_FEATURE_CHARTS,
    MAX_REMEMBERED_STEPS,
    SCORE_CHART_COUNT,
    StreamDetector,
    chart_name,
)
from equipoise.drift.diagnosis.stream_verdict import chart_history, compute_stream_verdict
from equipoise.images.camera import blackbody_gain, linear_to_srgb8, srgb8_to_linear
from tests.support.drift_data import CLASSES, COLOURS, extract_shape_features, render_shapes, shapes_profile

ASKED = 20_000.0
STEP = 16


def warmer(some):
    gain = torch.tensor(blackbody_gain(np.array([4500.0]))[0]).float().view(3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(some) * gain)


def rows(some, size=STEP):
    """Sums of steps of pictures in order."""
    base, shown = shapes_profile().baseline, extract_shape_features(some)
    return [
        base.sum_features(shown.select([*range(first, first + size)]))
        for first in range(0, len(shown) - size + 1, size)
    ]


def told(watch, steps, clock=0.0):
    """The steps, one a second; which of them set off an alarm."""
    return [place for place, row in enumerate(steps) if watch.add_sums(row, clock + place)]


def watched(*parts, asked=ASKED):
    """A watch that has seen parts of a stream in order."""
    watch = StreamDetector.start(shapes_profile(), asked)
    for some in parts:
        told(watch, rows(some), watch.observed_images)
    return watch


def said(watch):
    found = compute_stream_verdict(watch)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def clean(count=1600, seed=40):
    return render_shapes(count, seed)[0]


def of(shares, count, seed=41):
    """Pictures of classes in some shares."""
    labels = np.random.default_rng(seed).choice(CLASSES, count, p=shares)
    return render_shapes(count, seed, labels)[0]


def strangers(count, every, seed=42):
    """Pictures of which one in some is of a colour that no class has."""
    some, labels = render_shapes(count, seed)
    colours = COLOURS.clone()
    COLOURS[:] = torch.tensor([[200.0, 60, 200]])
    try:
        new, _ = render_shapes(count, seed, labels)
    finally:
        COLOURS[:] = colours
    some[::every] = new[::every]
    return some


def test_pictures_like_the_reference_are_ok():
    found = said(watched(clean()))
    assert found["state"] == "ok" and found["images"] == found["looked_at"] == 1600
    assert found["cause"] is None and found["since"] is None and not found["effects"]
    assert found["accuracy"]["low"] < 0.998 < found["accuracy"]["high"]
    names = [one["name"] for one in found["charts"]]
    assert sorted(names) == sorted({*CHARTED_FEATURES, *CLASS_AND_FEATURE_CHARTS})
    assert all(one["value"] < one["threshold"] for one in found["charts"])


@pytest.mark.parametrize("count", [0, STEP - 1, MIN_STREAM_IMAGES - 1, MIN_STREAM_IMAGES])
def test_of_few_pictures_nothing_is_known(count):
    watch = StreamDetector.start(shapes_profile(), ASKED)
    if count:
        told(watch, rows(clean(count), 1))
    found = said(watch)
    assert found["state"] == ("ok" if count >= MIN_STREAM_IMAGES else "unknown")
    assert found["images"] == count
    if count < MIN_STREAM_IMAGES:
        assert found["accuracy"] == "unknown" and "64 are needed" in found["why"]


def test_warmer_light_sets_off_one_alarm_that_says_what_and_since_when():
    watch = StreamDetector.start(shapes_profile(), ASKED)
    steps = [*rows(clean(960)), *rows(warmer(clean(640, 43)))]
    alarms = told(watch, steps, 1000.0)
    assert len(alarms) == 1 and 60 <= alarms[0] < 66
    found = said(watch)
    assert found["state"] == "drift" and found["cause"] == "colour temperature"
    assert found["since"]["images"] == pytest.approx(640, rel=0.2)
    assert found["since"]["at"].startswith("1970-01-01T00:17:") and found["since"]["at"][-8:-6] in ("39", "40")
    assert found["since"]["alarm"]["images"] == (alarms[0] + 1) * STEP
    assert found["effects"][0]["value"] == pytest.approx(4500, rel=0.1)
    chart = next(one for one in found["charts"] if one["name"] == "red over blue")
    red, _, blue = blackbody_gain(np.array([4500.0]))[0]
    assert chart["effect"]["value"] == pytest.approx(np.log2(red / blue), rel=0.1)


def test_an_alarm_is_over_some_time_after_things_are_as_before_and_comes_again():
    watch = watched(clean(320), warmer(clean(320, 44)))
    assert watch.alarm is not None
    told(watch, rows(clean(1600, 45)), 40.0)
    assert watch.alarm is None and said(watch)["state"] == "ok"
    assert len(told(watch, rows(warmer(clean(320, 46))), 200.0)) == 1


def test_what_changes_again_began_after_the_last_alarm_was_over():
    watch = watched(clean(800), warmer(clean(320, 50)), clean(3200, 51))
    assert watch.alarm is None and watch.over > 1120
    told(watch, rows(warmer(clean(160, 52))))
    found = said(watch)
    assert found["state"] == "drift" and 100 <= found["since"]["images"] <= 220


def test_how_high_charts_were_is_remembered_step_by_step():
    watch = watched(clean(800), warmer(clean(160, 50)))
    found = chart_history(watch)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["images"] == [STEP * (place + 1) for place in range(60)]
    red = np.array(found["charts"]["red over blue"])
    assert red[:50].max() < found["threshold"][0] < red[-1]
    assert found["charts"].keys() == watch.highest_by_name().keys()
    assert {name: values[-1] for name, values in found["charts"].items()} == pytest.approx(
        watch.highest_by_name(), abs=1e-2
    )


def test_charts_of_an_alarm_rise_to_twice_their_height_and_no_further():
    watch = watched(clean(320), warmer(clean(320, 44)))
    short = watch.values().max()
    told(watch, rows(warmer(clean(1600, 47))), 60.0)
    assert watch.values()[:SCORE_CHART_COUNT].max() <= 2.2 * watch.threshold() + short


@pytest.mark.parametrize("gone", [0, 2])
def test_a_class_that_stays_away_is_a_shift_of_labels(gone):
    shares = np.ones(CLASSES)
    shares[gone] = 0
    found = said(watched(clean(640, 48), of(shares / shares.sum(), 640)))
    assert found["state"] == "drift" and found["cause"] == "label shift"
    assert found["since"]["images"] == pytest.approx(640, rel=0.2)
    chart = next(one for one in found["charts"] if one["name"] == "class gone")
    assert chart["effect"]["class"] == gone and chart["effect"]["value"] < 0.02
    assert chart["effect"]["reference"] == pytest.approx(0.25, abs=0.05)


def test_a_class_that_comes_far_more_often_is_a_shift_of_labels():
    found = said(watched(clean(640, 48), of([0.1, 0.1, 0.7, 0.1], 640)))
    assert found["state"] == "drift" and found["cause"] == "label shift"
    chart = next(one for one in found["charts"] if one["name"] == "class more often")
    assert chart["effect"]["class"] == 2 and chart["effect"]["low"] < 0.7 < chart["effect"]["high"]


def test_something_new_among_the_old_is_a_new_class():
    found = said(watched(clean(640, 49), strangers(640, 5)))
    assert found["state"] == "drift" and found["cause"] == "new class"
    assert found["since"]["images"] == pytest.approx(640, rel=0.2)
    assert found["accuracy"] == "unknown"


def test_a_watch_that_is_restored_has_the_same_future_to_the_last_bit():
    steps = [*rows(clean(488, 50), 8), *rows(warmer(clean(488, 51)), 8)]
    for cut in (1, 40, 90):
        watch, other = StreamDetector.start(shapes_profile(), ASKED), StreamDetector.start(shapes_profile(), ASKED)
        before = told(watch, steps[:cut])
        other.restore(watch.state_arrays())
        assert other.alarm == watch.alarm
        assert told(watch, steps[cut:], cut) == told(other, steps[cut:], cut)
        assert before or watch.alarm
        same(watch, other)


def same(watch, other):
    one, two = watch.state_arrays(), other.state_arrays()
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], name)
    assert compute_stream_verdict(watch) == compute_stream_verdict(other)


def test_state_is_all_that_a_watch_holds_and_what_is_of_another_form_is_refused():
    watch = watched(clean(160))
    state = watch.state_arrays()
    for name in ("charts.scores", "charts.rest", "runs.share", "wealth", "rows"):
        for wrong in (state[name].astype(np.float32), state[name][..., :-1]):
            with pytest.raises(ValueError, match="cannot restore the detector state"):
                StreamDetector.start(shapes_profile(), ASKED).restore(state | {name: wrong})


def test_state_stays_small_however_many_pictures_come():
    watch = StreamDetector.start(shapes_profile(), ASKED)
    (row,) = rows(clean(STEP))
    told(watch, [row] * (MAX_REMEMBERED_STEPS + 20))
    assert sum(value.nbytes for value in watch.state_arrays().values()) < 1 << 20
    assert watch.observed_images == (MAX_REMEMBERED_STEPS + 20) * STEP and len(watch.rows) == MAX_REMEMBERED_STEPS


def test_what_was_answered_and_not_looked_at_counts_as_answered():
    watch, layout = StreamDetector.start(shapes_profile(), ASKED), shapes_profile().baseline.layout
    for row in rows(clean(320, 52)):
        watch.add_sums(row, 0.0)
        assert not watch.add_sums(layout.pack_unobserved(48), 0.0)
    found = said(watch)
    assert found["looked_at"] == 320 and found["images"] == 320 + 48 * 20
    for row in rows(warmer(clean(320, 53))):
        watch.add_sums(row + layout.pack_unobserved(48), 60.0)
    found = said(watch)
    assert found["state"] == "drift" and found["since"]["images"] == pytest.approx(4 * 320, rel=0.2)


def test_pictures_that_wait_for_a_step_count_once_it_is_full():
    one, other = StreamDetector.start(shapes_profile(), ASKED), StreamDetector.start(shapes_profile(), ASKED)
    told(one, rows(clean(320, 54), 1))
    told(other, rows(clean(320, 54)))
    one.times = other.times
    same(one, other)


def test_a_chart_has_the_name_of_what_it_looks_at():
    assert chart_name(0) == chart_name(len(CHARTED_FEATURES)) == CHARTED_FEATURES[0]
    assert [chart_name(SCORE_CHART_COUNT + place) for place in range(3)] == [
        "class gone",
        "class more often",
        "features",
    ]
    watch = watched(clean(160))
    highest = watch.highest_by_name()
    assert (
        set(highest) == {*CHARTED_FEATURES, *CLASS_AND_FEATURE_CHARTS} and max(highest.values()) == watch.values().max()
    )


def test_every_alarm_over_every_cause_says_something_that_is_json():
    for change in (
        lambda some: some // 4,
        lambda some: some * 0,
        lambda some: some * 0 + 255,
        lambda some: some.flip(1),
    ):
        found = said(watched(clean(160), change(clean(320, 55))))
        assert found["state"] == "drift" and found["why"]
