"""The page of a drift verdict says what the verdict holds, and nothing that it does not hold."""

import re

import pytest

from dashboards.page import ImageGallery, Page, Panel, Table, TimeCell, render_html
from dashboards.panels.drift import (
    STATE_SENTENCES,
    UNKNOWN_REMEDY,
    build_drift_sections,
    causes_table,
    charts_table,
    events_table,
    prefix_title,
    sources_table,
    verdict_facts,
)
from dashboards.reports import drift_page
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.verdict import (
    ChartEffect,
    ChartHistory,
    ChartReading,
    CorruptionEffect,
    DatasetVerdict,
    DriftOnset,
    FalseAlarmRate,
    StreamVerdict,
    TickCounts,
)
from equipoise.drift.monitor.entries import DriftEvent

CHARTS = (
    ChartReading(
        name="brightness", value=7.5, threshold=3.0, effect=ChartEffect(unit="sd", value=1.2, low=1.0, high=1.4)
    ),
    ChartReading(name="sharpness", value=0.5, threshold=2.5, effect=None),
)
EFFECTS = (
    CorruptionEffect(cause="colour", detail="bluer", value=4010.0, unit="K", low=3900.0, high=4100.0, explained=0.876),
    CorruptionEffect(cause="blur", detail="softer", value=1.5),
)
EVENTS = [
    DriftEvent(event="replica lost", stream="", time=0.5, why="3 reports"),
    DriftEvent(event="alarm", stream="shop", time=86400.0, verdict=StreamVerdict(state="drift", cause="colour")),
]
STREAM = StreamVerdict(
    state="drift",
    why="images are bluer",
    images=12_345,
    cause="colour temperature",
    since=DriftOnset(at="2026-01-02T03:04:05+00:00", images_ago=1234),
    accuracy=AccuracyEstimate(0.804, 0.757, 0.852),
    run_length=2000.0,
    verified=FalseAlarmRate(
        asked=2000.0, pictures=9000, alarms=8, realised=1097.4, held_out=180, low=540.0, high=2230.0
    ),
    replicas=3,
    ticks=TickCounts(lost=2, late=7, twice=9),
)


def list_parts(sections):
    """Return the parts of sections by name."""
    return {part.name: part for section in sections for part in section.parts}


def test_facts_of_a_stream_say_when_the_change_began_and_how_often_alarms_are_false():
    assert verdict_facts(STREAM) == {
        "state": "drift",
        "images": "12,345",
        "cause": "colour temperature",
        "change began": "1,234 images ago",
        "change began, UTC": "2026-01-02 03:04:05",
        "estimated accuracy, without labels": "80% (76% to 85%)",
        "false-alarm rate requested": "1 in 2,000 requests",
        "false-alarm rate when published": (
            "1 in 1,100 requests, 540 to 2,200 with 95 % probability (1 in 2,000 requested)"
        ),
        "replicas": "3 (2 reports lost)",
    }


def test_facts_that_are_unknown_are_left_out():
    unknown = {"state": "ok", "images": "0", "estimated accuracy, without labels": "unknown"}
    assert verdict_facts(StreamVerdict(state="ok")) == unknown
    assert verdict_facts(DatasetVerdict(state="ok")) == unknown


def test_facts_of_a_folder_end_with_the_estimated_accuracy():
    verdict = DatasetVerdict(state="drift", images=20, cause="blur", accuracy=AccuracyEstimate(0.5, 0.4, 0.6))
    assert verdict_facts(verdict) == {
        "state": "drift",
        "images": "20",
        "cause": "blur",
        "estimated accuracy, without labels": "50% (40% to 60%)",
    }


def test_causes_are_listed_with_the_size_of_their_effect():
    table = causes_table(DatasetVerdict(state="drift", effects=EFFECTS))
    assert table.columns == ["cause", "detail", "size", "share explained"]
    assert table.rows == [
        ["colour", "bluer", "4,010 (3,900 to 4,100) K", "88%"],
        ["blur", "softer", "1.5", "-"],
    ]
    assert causes_table(DatasetVerdict(state="ok")) is None


def test_charts_are_listed_with_their_threshold_and_effect():
    table = charts_table(DatasetVerdict(state="ok", charts=CHARTS))
    assert table.columns == ["chart", "value", "alarm threshold", "effect"]
    assert table.rows == [
        ["brightness", 7.5, 3.0, "1.2 (1 to 1.4) sd"],
        ["sharpness", 0.5, 2.5, None],
    ]


def test_sources_are_listed_with_their_own_state():
    sources = {"shop": StreamVerdict(state="drift", images=70, cause="blur"), "yard": StreamVerdict(state="ok")}
    table = sources_table(StreamVerdict(state="ok", sources=sources))
    assert table.columns == ["source", "state", "images", "cause"]
    assert table.rows == [["shop", "drift", 70, "blur"], ["yard", "ok", 0, None]]
    assert sources_table(StreamVerdict(state="ok")) is None
    assert sources_table(DatasetVerdict(state="ok")) is None


def test_latest_event_comes_first():
    table = events_table(EVENTS)
    assert table.columns == ["time, UTC", "event", "stream", "cause"]
    assert table.rows == [
        [TimeCell("1970-01-02 00:00:00"), "alarm", "shop", "colour"],
        [TimeCell("1970-01-01 00:00:00"), "replica lost", "", "3 reports"],
    ]
    assert events_table([]) is None


def test_verdict_with_everything_has_a_section_for_each():
    history = ChartHistory(image_numbers=[1, 2], threshold=[3.0, 3.0], charts={"brightness": [1.0, 2.0]})
    verdict = StreamVerdict(
        state="drift",
        why="images are bluer",
        charts=CHARTS,
        classes={"cat": 1},
        effects=EFFECTS,
        sources={"shop": StreamVerdict(state="ok")},
    )
    sections = build_drift_sections(verdict, history, EVENTS, [(b"a", "first")], [(b"b", "usual")], "shop-")
    assert [section.title for section in sections] == ["Verdict", "Charts", "Classes", "Images", "Events"]
    assert sections[0].paragraphs == [STATE_SENTENCES["drift"].format("images"), "Images are bluer."]
    assert [part.name for part in sections[0].parts] == ["shop-verdict", "shop-causes", "shop-sources"]
    parts = list_parts(sections)
    assert "over the images answered" in parts["shop-charts-panel"].caption
    assert parts["shop-charts-panel"].data_table.rows[0][:3] == ["brightness", 7.5, 3.0]
    assert [trace.name for trace in parts["shop-charts-panel"].figure.data] == ["brightness", "alarm threshold"]
    assert "predicted classes" in parts["shop-classes-panel"].caption
    assert [trace.name for trace in parts["shop-classes-panel"].figure.data] == ["reference", "now"]
    assert parts["shop-charts-panel"].reading and parts["shop-classes-panel"].reading
    assert "most informative first" in parts["shop-moved"].caption and parts["shop-moved"].captioned_pngs[0][0] == b"a"
    assert "reference" in parts["shop-usual"].caption and parts["shop-usual"].captioned_pngs[0][0] == b"b"
    assert len(parts["shop-events"].rows) == 2


def test_verdict_with_nothing_has_one_section():
    (section,) = build_drift_sections(StreamVerdict(state="unknown"))
    assert section.title == "Verdict"
    assert section.paragraphs == [STATE_SENTENCES["unknown"].format("images"), UNKNOWN_REMEDY.format("images")]
    assert [part.name for part in section.parts] == ["verdict"]


@pytest.mark.parametrize("history", [None, ChartHistory()])
def test_charts_without_history_are_drawn_as_bars(history):
    parts = list_parts(build_drift_sections(StreamVerdict(state="ok", charts=CHARTS), history))
    panel = parts["charts-panel"]
    assert "orange" in panel.caption
    assert [trace.type for trace in panel.figure.data] == ["bar", "bar", "scatter"]
    assert len(panel.data_table.rows) == 2


@pytest.mark.parametrize("name", ["moved", "usual"])
def test_page_shows_the_images_that_there_are(name):
    images = [(b"png", "7 of 9")]
    given = {"drifted_images": images} if name == "moved" else {"reference_images": images}
    sections = build_drift_sections(DatasetVerdict(state="ok"), **given)
    (gallery,) = [part for part in list_parts(sections).values() if isinstance(part, ImageGallery)]
    assert gallery.name == name
    assert "data:image/png;base64,cG5n" in render_html(Page(title="", lead="", sections=sections))


def test_sections_of_several_models_are_told_apart_by_their_title():
    (section,) = build_drift_sections(StreamVerdict(state="ok"))
    assert prefix_title("Vending", section).title == "Vending: verdict"


def test_page_names_the_folder_the_bundle_and_the_state():
    verdict = DatasetVerdict(state="drift", folder="photos", bundle="bundles/shop", model="shop")
    page = drift_page(verdict, [(b"new", "")], [(b"old", "")])
    assert page.title == "shop: drift"
    assert page.lead == "photos compared with the reference of shop."
    parts = list_parts(page.sections)
    assert parts["moved"].captioned_pngs == [(b"new", "")]
    assert parts["usual"].captioned_pngs == [(b"old", "")]


def test_page_of_requests_shows_their_history_and_events():
    history = ChartHistory(image_numbers=[1, 2], threshold=[3.0, 3.0], charts={"brightness": [1.0, 2.0]})
    page = drift_page(StreamVerdict(state="ok"), [], [], history, EVENTS)
    assert page.title == "Images: no drift"
    assert page.lead == "Requests compared with the reference of a bundle."
    assert [section.title for section in page.sections] == ["Verdict", "Charts", "Events"]


WORDS_OF_IMAGES = re.compile(r"image|pictur|photo|pixel|light|bright|colour|camera", re.IGNORECASE)


def list_page_texts(sections):
    """Return all that a reader of the sections sees, without the numbers."""
    for section in sections:
        yield from (section.title, *section.paragraphs)
        for part in section.parts:
            yield str(getattr(part, "facts", "")) + str(getattr(part, "text", ""))
            if isinstance(part, Panel):
                layout = part.figure.layout
                yield from (part.caption, part.reading, str(layout.xaxis.title.text), str(layout.yaxis.title.text))
                yield str(part.data_table)
            elif isinstance(part, Table):
                yield str(part)


@pytest.mark.parametrize("state", ["ok", "drift", "unknown"])
@pytest.mark.parametrize(("kind", "word"), [("table", "row"), ("text", "text")])
def test_page_of_rows_and_texts_has_no_word_of_images(kind, word, state):
    facts = {
        "kind": kind,
        "state": state,
        "images": 7,
        "classes": {"low": 4, "high": 3},
        "usual": {"low": 1, "high": 1},
    }
    facts |= {"charts": (CHARTS[1],), "conditions": {"a": 0.5, "b": 0.5}, "condition": "a"}
    history = ChartHistory(
        image_numbers=[1, 2], threshold=[3.0, 3.0], charts={"x": [1.0, 2.0]}, conditions={"a": [1, 1], "b": [0, 0]}
    )
    moved = Table(name="moved", columns=[word, "x"], rows=[["17", 0.5]])
    sources = {"shop": StreamVerdict(state="ok", kind=kind)}
    since = DriftOnset(at="2026-01-02T03:04:05+00:00", images_ago=5) if state == "drift" else None
    stream = StreamVerdict(**facts, has_accuracy=kind == "table", sources=sources, since=since)
    dataset = DatasetVerdict(**facts, has_accuracy=False)
    for page in (drift_page(stream, [], [], history), drift_page(dataset, [], [], moved_examples=moved)):
        texts = [page.title, page.lead, *list_page_texts(page.sections)]
        assert [text for text in texts if WORDS_OF_IMAGES.search(text)] == []
        assert list_parts(page.sections)["verdict"].facts[f"{word}s"] == "7"
    titles = [section.title for section in page.sections]
    assert titles == [
        "Verdict",
        "Charts",
        *(["Answers"] if kind == "table" else []),
        f"{word.capitalize()}s that changed most",
    ]


def test_number_has_no_accuracy_and_its_answers_are_quarters():
    verdict = DatasetVerdict(kind="table", has_accuracy=False, state="ok", classes={"low": 1}, usual={"low": 1})
    sections = build_drift_sections(verdict)
    parts = list_parts(sections)
    assert [*parts["verdict"].facts] == ["state", "rows"]
    assert (
        parts["classes-panel"].figure.layout.xaxis.title.text == "answer"
        and "quarter" in parts["classes-panel"].reading
    )
    known = DatasetVerdict(kind="table", state="ok", classes={"low": 1}, usual={"low": 1})
    assert "estimated accuracy, without labels" in list_parts(build_drift_sections(known))["verdict"].facts
