"""The report of a demo shows what its records hold."""

import json
from dataclasses import replace

import pytest

from dashboards.demo_report import (
    accuracy_figure,
    build_demo_page,
    describe_phase_verdicts,
    describe_plan,
    describe_recovery,
    describe_state,
    describe_verdict,
    format_recovered,
    is_demo_folder,
    read_demo_records,
    summarize_demo,
)
from dashboards.demo_story import DemoStory, PhaseAnswers, PhaseVerdict
from dashboards.page import NumberCell, render_html
from dashboards.theme import BLUE, GREEN, ORANGE
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.storage.atomic import write_json
from tests.support.demo_records import (
    PLAN,
    RECORDS,
    REQUESTS_AND_CORRECT,
    WARMER,
    require_numbers,
)


@pytest.fixture
def demo_folder(tmp_path):
    for name, contents in RECORDS.items():
        write_json(tmp_path / name, contents)
    return tmp_path


def test_summary_lines_match_the_records(demo_folder):
    records = read_demo_records(demo_folder)
    require_numbers(records)
    assert summarize_demo(records) == {
        "plan": "2 workers x 24 at a learning rate of 0.137: predicted 4.5 s (3.5 to 5.5 s) to the target."
        " Confirmed: a training run took 4.74 s to the target, inside the predicted 3.52 s to 5.53 s.",
        "model": "test accuracy 97.8% after 5,760 examples; engine onnxruntime",
        "service": "97.0% of 400 answers correct",
        "drift": "37.0% of 400 answers correct; cause: colour temperature, for the last 397 of 811 images",
        "remedy": "100 labels, 1,234 requests in the meantime, 0 unanswered; 93.0% of 400 answers correct under the new"
        " light, 97.5% of 400 answers correct under the old light: 93.3% of the lost accuracy recovered",
    }


def test_page_shows_the_accuracy_of_each_phase(demo_folder):
    page = build_demo_page(read_demo_records(demo_folder))
    (panel,) = page.iter_panels()
    assert list(panel.figure.data[0].y) == [correct / requests for requests, correct in REQUESTS_AND_CORRECT.values()]
    html = render_html(page)
    for expected in ("Test accuracy 97.8%", "1,234 requests", "sweep/curve.html", "3. C: 53 s"):
        assert expected in html
    json.dumps(summarize_demo(read_demo_records(demo_folder)))


def test_page_has_a_section_for_each_chapter_and_links_to_their_pages(demo_folder):
    page = build_demo_page(read_demo_records(demo_folder))
    accuracy, verdicts, *chapters = page.sections
    assert verdicts.title == "Drift after the swap"
    assert page.lead == "The demo took 5.02 min."
    assert accuracy.paragraphs == ["Colour temperature 4010 K."]
    assert [chapter.title for chapter in chapters] == [
        f"{number}. {name}: {50 + number} s" for number, name in enumerate("ABCDE", 1)
    ]
    assert chapters[2].paragraphs == ["97.0% of 400 answers correct."]
    assert [link.href for link in page.links] == [
        *("sweep/curve.html", "sweep/scaling.html", "vending/run.html", "drift/drift.html", "experiments.html")
    ]


def test_verdicts_after_the_swap_are_a_table_with_the_share_of_each_condition(demo_folder):
    section = build_demo_page(read_demo_records(demo_folder)).sections[1]
    (table,) = section.parts
    assert list(table.columns) == ["phase", "requests", "verdict", "as published", WARMER]
    assert table.rows == [
        ["adapted, new light", 400, "ok", NumberCell(0.04, "4%"), NumberCell(0.96, "96%")],
        ["adapted, old light", 400, "ok", NumberCell(0.98, "98%"), NumberCell(0.02, "2%")],
        ["adapted, both lights", 400, "drift", NumberCell(0.49, "49%"), NumberCell(0.51, "51%")],
    ]
    assert section.paragraphs[1:] == ["Adapted, both lights: blur: softer edges."]  # why it is not ok


def test_demo_without_verdicts_after_the_swap_has_no_section_of_them(demo_folder):
    story = replace(read_demo_records(demo_folder).story, verdicts={})
    page = build_demo_page(replace(read_demo_records(demo_folder), story=story))
    assert "Drift after the swap" not in [section.title for section in page.sections]
    assert describe_phase_verdicts(story) == {}


def test_each_verdict_after_the_swap_is_a_line(demo_folder):
    story = read_demo_records(demo_folder).story
    assert describe_phase_verdicts(story) == {
        "adapted": f"adapted, new light: the verdict is ok; requests look like: 4% as published, 96% {WARMER}",
        "again": f"adapted, old light: the verdict is ok; requests look like: 98% as published, 2% {WARMER}",
        "mixed": "adapted, both lights: the verdict is drift (blur: softer edges);"
        f" requests look like: 49% as published, 51% {WARMER}",
    }
    assert describe_state(PhaseVerdict(state="ok", why="", conditions={})) == "ok"  # with one condition


def test_accuracy_of_each_phase_is_a_bar_with_its_percentage(demo_folder):
    figure = accuracy_figure(read_demo_records(demo_folder).story.sent)
    (bars,) = figure.data
    assert list(bars.x) == [
        *("original light", "new light", "adapted, new light", "adapted, old light", "adapted, both lights")
    ]
    assert [text.partition("<br>")[0] for text in bars.text] == ["97.0%", "37.0%", "93.0%", "97.5%", "95.2%"]
    assert bars.text[1] == "37.0%<br>32-42%"  # the 95 % Wilson interval of 148 of 400
    assert figure.layout.xaxis.title.text
    assert list(bars.marker.color) == [BLUE, ORANGE, GREEN, GREEN, GREEN]
    bottom, top = figure.layout.yaxis.range
    assert bottom == 0 and 1.2 < top < 1.3  # room for two lines above a full bar
    assert figure.layout.yaxis.tickformat == ".0%" and not figure.layout.showlegend


def test_folder_of_a_demo_holds_its_story(demo_folder, tmp_path):
    assert is_demo_folder(demo_folder)
    assert not is_demo_folder(demo_folder / "sweep")
    (demo_folder / "story.json").write_text("{}")
    assert not is_demo_folder(demo_folder)


def test_demo_without_plan_or_learning_rate_says_so():
    assert describe_plan(None) == "no plan"
    assert describe_plan(replace(PLAN, lr=None, nodes=2)).startswith("2 workers on 2 nodes x 24: predicted 4.5 s")


@pytest.mark.parametrize(("regained", "text"), [(0.999, "99.9%"), (1.0, "all"), (1.2, "all")])
def test_recovered_accuracy_is_at_most_all_of_it(regained, text):
    assert format_recovered(replace(DemoStory.empty(), regained=regained)) == text


def test_story_is_read_as_it_was_written(tmp_path):
    answers = PhaseAnswers(requests=4, right=3, accuracy=0.75, unanswered=1)
    story = replace(DemoStory.empty(), sent=dict.fromkeys(REQUESTS_AND_CORRECT, answers), seconds=2.5, labels=7)
    story.verdicts["mixed"] = PhaseVerdict(state="ok", why="few", conditions={"as published": 0.5, WARMER: 0.5})
    story.write(tmp_path)
    assert DemoStory.read(tmp_path) == story
    assert "meantime" not in describe_recovery(story)
    assert DemoStory.empty() == DemoStory(
        demo=1, chapters=[], sent={}, verdicts={}, swap=None, labels=0, regained=0.0, seconds=0.0
    )


def test_verdict_without_begin_names_the_cause_alone():
    assert describe_verdict(StreamVerdict(state="drift", cause="blur", images=9)) == "cause: blur"
