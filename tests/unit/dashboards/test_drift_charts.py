"""The charts of a drift page show what the verdict and the history of its stream hold."""

import pytest

from dashboards.panels.drift import (
    MAX_CHART_BARS,
    MAX_CHART_LINES,
    MAX_CLASS_BARS,
    chart_bars_figure,
    chart_history_figure,
    class_shares_figure,
)
from dashboards.theme import BLUE, NEUTRAL_COLOR, ORANGE, SERIES_COLORS
from equipoise.drift.diagnosis.verdict import (
    AlarmTime,
    ChartHistory,
    ChartReading,
    DatasetVerdict,
    DriftOnset,
    StreamVerdict,
)

NOW = "2026-01-01T00:00:00+00:00"
HISTORY = ChartHistory(
    image_numbers=[100, 200, 300],
    times=[1.0, 2.0, 3.0],
    threshold=[5.0, 5.5, 6.0],
    charts={"brightness": [1.0, 2.0, 3.0], "contrast": [2.0, 9.0, 4.0]},
)


def build_stream_verdict(onset_images=None, alarm_images=None, **facts):
    """Build a verdict on 300 requests, of which the last `onset_images` have changed."""
    alarm = None if alarm_images is None else AlarmTime(image_number=alarm_images, at=NOW, chart="contrast")
    since = None if onset_images is None else DriftOnset(at=NOW, images_ago=onset_images, alarm=alarm)
    return StreamVerdict(state="drift" if since else "ok", images=300, since=since, **facts)


def build_chart_verdict(*values_and_thresholds):
    """Build a verdict on images with one chart, named by its position, for each pair of value and threshold."""
    charts = [
        ChartReading(name=str(position), value=value, threshold=threshold, effect=None)
        for position, (value, threshold) in enumerate(values_and_thresholds)
    ]
    return DatasetVerdict(state="ok", charts=tuple(charts))


def marked_positions(figure):
    """Return the position of each vertical line of a figure, by its entry in the legend."""
    return {trace.name: trace.x[0] for trace in figure.data if trace.name in ("change began", "alarm")}


def top_of_axis(threshold, *heights):
    """Return where the vertical axis of a history with these heights ends."""
    history = ChartHistory(image_numbers=[1, 2], threshold=threshold, charts={"a": [*heights]})
    bottom, top = chart_history_figure(history, build_stream_verdict()).layout.yaxis.range
    assert bottom == 0
    return top


def test_history_has_a_line_per_chart_and_one_for_the_threshold():
    traces = chart_history_figure(HISTORY, build_stream_verdict()).data
    assert [trace.name for trace in traces] == ["contrast", "brightness", "alarm threshold"]  # the highest first
    assert [list(trace.y) for trace in traces] == [[2, 9, 4], [1, 2, 3], [5, 5.5, 6]]
    assert all(list(trace.x) == [100, 200, 300] and trace.mode == "lines" for trace in traces)
    assert [trace.line.color for trace in traces] == [*SERIES_COLORS[:2], NEUTRAL_COLOR]
    assert [trace.line.dash for trace in traces] == [None, None, "dash"]


def test_only_the_highest_charts_are_drawn_over_time():
    charts = {str(height): [float(height), 0.0] for height in range(MAX_CHART_LINES + 2)}
    history = ChartHistory(image_numbers=[1, 2], threshold=[1.0, 1.0], charts=charts)
    names = [trace.name for trace in chart_history_figure(history, build_stream_verdict()).data]
    assert names == ["7", "6", "5", "4", "3", "2", "alarm threshold"]
    assert len(SERIES_COLORS) == MAX_CHART_LINES  # no two lines of one colour


def test_chart_without_heights_is_drawn_last():
    history = ChartHistory(image_numbers=[1], threshold=[1.0], charts={"empty": [], "low": [0.5]})
    assert [trace.name for trace in chart_history_figure(history, build_stream_verdict()).data][:2] == ["low", "empty"]


def test_begin_of_the_change_and_alarm_are_marked_where_they_happened():
    figure = chart_history_figure(HISTORY, build_stream_verdict(onset_images=120, alarm_images=230))
    assert marked_positions(figure) == {"change began": 180, "alarm": 230}
    began, alarm = figure.data[-2:]
    assert began.line.color == alarm.line.color == NEUTRAL_COLOR  # the other colours are those of charts
    assert len({began.line.dash, alarm.line.dash, "dash"}) == 3
    assert figure.layout.xaxis.title.text == "image number, from the first one answered"


def test_change_without_alarm_is_marked_by_its_begin_alone():
    assert marked_positions(chart_history_figure(HISTORY, build_stream_verdict(onset_images=100))) == {
        "change began": 200
    }


@pytest.mark.parametrize(("alarm_images", "is_marked"), [(-100, True), (-101, False)])
def test_marks_further_left_than_one_width_of_the_figure_are_left_out(alarm_images, is_marked):
    figure = chart_history_figure(HISTORY, build_stream_verdict(onset_images=10, alarm_images=alarm_images))
    assert ("alarm" in marked_positions(figure)) == is_marked


def test_stream_without_drift_and_history_without_requests_have_no_marks():
    assert marked_positions(chart_history_figure(HISTORY, build_stream_verdict())) == {}
    assert marked_positions(chart_history_figure(ChartHistory(), build_stream_verdict(onset_images=10))) == {}
    assert marked_positions(chart_history_figure(HISTORY, DatasetVerdict(state="drift", images=300))) == {}


def test_vertical_axis_ends_above_the_highest_chart_but_at_four_thresholds():
    assert top_of_axis([10.0, 10.0], 2.0, 20.0) == pytest.approx(20 * 1.05)
    assert top_of_axis([5.0, 10.0], 2.0, 39.0) == pytest.approx(39 * 1.05)
    assert top_of_axis([5.0, 10.0], 2.0, 4000.0) == pytest.approx(40 * 1.05)
    assert top_of_axis([10.0, 10.0], 0.0, 0.1) == pytest.approx(1.05)
    assert top_of_axis([], 3.0, 3.0) == pytest.approx(1.05)


def test_bars_are_orange_from_their_threshold_on():
    figure = chart_bars_figure(build_chart_verdict((2.0, 3.0), (3.0, 3.0), (5.0, 3.5)))
    alarms, others, thresholds = figure.data
    assert list(figure.layout.yaxis.categoryarray) == list(thresholds.y) == ["0", "1", "2"]  # the last is at the top
    assert (list(alarms.y), list(alarms.x), list(others.y), list(others.x)) == (["1", "2"], [3, 5], ["0"], [2])
    assert list(thresholds.x) == [3, 3, 3.5]
    assert (alarms.marker.color, others.marker.color) == (ORANGE, BLUE)
    assert [trace.name for trace in figure.data] == ["alarm", "below the threshold", "alarm threshold"]
    assert (thresholds.mode, thresholds.marker.symbol) == ("markers", "line-ns")


def test_bars_are_ordered_by_their_distance_from_the_threshold():
    layout = chart_bars_figure(build_chart_verdict((9.0, 20.0), (4.0, 1.0), (1.0, 2.0))).layout
    assert list(layout.yaxis.categoryarray) == ["0", "2", "1"]


def test_only_the_charts_closest_to_an_alarm_have_bars():
    few = chart_bars_figure(build_chart_verdict((1.0, 3.0)))
    figure = chart_bars_figure(build_chart_verdict(*((value, 3.0) for value in range(20))))
    assert list(figure.data[0].x) == [*range(20 - MAX_CHART_BARS, 20)]
    assert MAX_CHART_BARS == 12
    assert few.layout.height < figure.layout.height < 26 * 20  # room for each bar drawn
    assert "p-value" in figure.layout.xaxis.title.text


def test_classes_are_drawn_as_shares_beside_those_of_the_reference():
    verdict = DatasetVerdict(state="ok", classes={"cat": 3, "dog": 1}, usual={"dog": 5, "cat": 5})
    figure = class_shares_figure(verdict)
    reference, now = figure.data
    assert list(reference.x) == list(now.x) == ["dog", "cat"]
    assert list(reference.y) == [0.5, 0.5]
    assert list(now.y) == [0.25, 0.75]
    assert (reference.name, now.name) == ("reference", "now")
    assert (reference.marker.color, now.marker.color) == (NEUTRAL_COLOR, BLUE)
    assert figure.layout.barmode == "group"
    assert figure.layout.yaxis.tickformat == ".0%"
    assert figure.layout.xaxis.type == "category"  # also where the names of classes are numbers


def test_classes_without_reference_are_drawn_alone():
    reference, now = class_shares_figure(DatasetVerdict(state="ok", classes={"cat": 3, "owl": 1})).data
    assert list(now.x) == ["cat", "owl"] and list(now.y) == [0.75, 0.25]
    assert list(reference.y) == [0, 0]


def test_of_many_classes_those_whose_share_changed_most_are_drawn():
    names = [f"class {number}" for number in range(MAX_CLASS_BARS + 2)]
    verdict = DatasetVerdict(
        state="ok", classes={name: 100 + 2 * number for number, name in enumerate(names)}, usual=dict.fromkeys(names, 1)
    )
    drawn = list(class_shares_figure(verdict).data[0].x)
    assert len(drawn) == 40
    left_out = {*names} - {*drawn}
    assert left_out == {"class 20", "class 21"}  # whose counts are the mean
    assert drawn == [name for name in names if name in drawn]


def test_class_that_vanished_is_drawn_before_classes_that_stayed():
    stayed = {f"class {number}": 2 for number in range(MAX_CLASS_BARS)}
    verdict = DatasetVerdict(state="ok", classes=stayed, usual={**stayed, "gone": 1})
    reference, now = class_shares_figure(verdict).data
    assert reference.x[-1] == now.x[-1] == "gone"
    assert (reference.y[-1], now.y[-1]) == (1 / 81, 0)
