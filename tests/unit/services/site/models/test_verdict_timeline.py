"""Verdicts over time: spans between alarms, their ends and restarts of the charts, and their picture."""

from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.drift.monitor.entries import DriftEvent
from services.site.models.deployments.verdict_timeline import list_verdict_spans
from services.site.models.timeline_picture import PICTURE_WIDTH, draw_timeline


def alarm(time, cause):
    return DriftEvent(event="alarm", stream="s", time=time, verdict=StreamVerdict(state="drift", cause=cause))


def event(kind, time):
    return DriftEvent(event=kind, stream="s", time=time)


def summarize(spans):
    return [(span.state, span.start, span.end, span.cause) for span in spans]


def test_a_drift_lasts_from_its_alarm_to_its_end():
    events = [alarm(10.0, "blur"), event("over", 30.0), event("replica lost", 35.0), alarm(50.0, "noise")]
    assert summarize(list_verdict_spans(events, "drift", 0.0, 60.0)) == [
        ("ok", 0.0, 10.0, ""),
        ("drift", 10.0, 30.0, "blur"),
        ("ok", 30.0, 50.0, ""),
        ("drift", 50.0, 60.0, "noise"),
    ]


def test_after_a_restart_of_the_charts_the_verdict_of_now_stands():
    events = [alarm(10.0, "blur"), event("reset", 30.0)]
    assert summarize(list_verdict_spans(events, "unknown", 0.0, 60.0))[-1] == ("unknown", 30.0, 60.0, "")


def test_without_events_the_verdict_of_now_stood_all_the_time():
    assert summarize(list_verdict_spans([], "ok", 0.0, 60.0)) == [("ok", 0.0, 60.0, "")]
    assert summarize(list_verdict_spans([], "unknown", 0.0, 60.0)) == [("unknown", 0.0, 60.0, "")]


def test_events_before_the_beginning_are_left_out():
    assert summarize(list_verdict_spans([alarm(10.0, "blur")], "ok", 20.0, 60.0)) == [("ok", 20.0, 60.0, "")]


def test_the_picture_covers_all_its_width_and_says_the_same_in_words():
    picture = draw_timeline(list_verdict_spans([alarm(1000.0, "blur"), event("over", 3000.0)], "ok", 0.5, 4000.5))
    assert [bar.state for bar in picture.bars] == ["ok", "drift", "ok"]
    assert sum(bar.width for bar in picture.bars) == PICTURE_WIDTH
    assert picture.bars[1].text == "drift (blur) from 1970-01-01 00:16:40 to 1970-01-01 00:50:00"
    assert draw_timeline([]) is None


def test_a_short_drift_can_be_seen():
    spans = list_verdict_spans([alarm(1e5, "blur"), event("over", 1e5 + 2)], "ok", 0.0, 1e6)
    assert draw_timeline(spans).bars[1].width >= 4
