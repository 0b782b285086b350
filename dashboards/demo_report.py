"""The story of a demo: what it left in records, in words and on a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.page import Link, Page, Panel, Section
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import BLUE, GREEN, ORANGE, apply_theme, format_percent, format_seconds
from equipoise.storage.atomic import read_json

JsonMapping = Mapping[str, Any]
STORY_FILE = "story.json"
EMPTY_STORY_JSON: JsonMapping = {"demo": 1, "chapters": [], "sent": {}}
"""of a story that has not begun"""
PHASE_TITLES = {
    "clean": "all is well",
    "drift": "the light changed",
    "adapted": "adapted",
    "again": "adapted, old light",
}
"""of what was sent, in the order in which it is told"""


@dataclass(frozen=True)
class DemoRecords:
    """The records of a demo; every number that is told of it stands in one of them."""

    story: JsonMapping
    plan: JsonMapping
    confirm: JsonMapping
    run: JsonMapping
    bundle: JsonMapping
    verdict: JsonMapping


def is_demo_folder(folder: Path) -> bool:
    """Whether a folder is a demo's."""
    try:
        found = read_json(folder / STORY_FILE)
    except (ValueError, OSError):
        return False
    return isinstance(found, dict) and EMPTY_STORY_JSON.keys() <= found.keys()


def read_demo_records(folder: Path) -> DemoRecords:
    """From where each chapter left it."""
    places = ("sweep/plan", "sweep/confirm", "vending/record", "bundles/vending/bundle", "drift/verdict")
    return DemoRecords(read_json(folder / STORY_FILE), *(read_json(folder / f"{place}.json") for place in places))


def describe_planned(plan: JsonMapping) -> str:
    """What a sweep came to."""
    one = plan["plan"]
    took = one["seconds"]
    return (
        f"{format_cluster_shape(one['nodes'], one['workers'])} x {one['batch']} "
        "at a learning rate of "
        f"{one['lr']:.3g}: about"
        f" {format_seconds(took['value'])} to the target ({format_seconds(took['low'])} "
        f"to {format_seconds(took['high'])})"
    )


def describe_confirmation(confirmation: JsonMapping) -> str:
    """How the plan kept its word."""
    if confirmation["seconds"] is None:
        return "the confirming run did not reach the target"
    took = f"the confirming run took {format_seconds(confirmation['seconds'])}"
    if confirmation["inside"]:
        return f"{took}: inside of what was foretold"
    examples, step = (confirmation[name] for name in ("examples", "step"))
    return (
        f"{took}: outside of what was foretold, with {examples['ratio']:.2f} of the examples and steps that took"
        f" {step['ratio']:.2f} of the time"
    )


def describe_fine_tuning(run: JsonMapping, bundle: JsonMapping) -> str:
    """What was fine-tuned and published."""
    seen, engine = run["laps"][-1]["seen"], bundle["engine"]["name"]
    return f"{format_percent(bundle['metrics']['accuracy'])} right on test after {seen:,} examples; answers by {engine}"


def describe_verdict(verdict: JsonMapping) -> str:
    """The verdict."""
    return f"{verdict['cause']}, for the last {verdict['since']['images']:,} of {verdict['images']:,} requests"


def describe_recovery(story: JsonMapping) -> str:
    """What it took, and what came back."""
    sent = story["sent"]
    meanwhile = f"{sent['meanwhile']['requests']:,} requests meanwhile, {sent['meanwhile']['unanswered']} unanswered"
    back = (
        f"{describe_answers(sent['adapted'])} under the new light, {describe_answers(sent['again'])} under the old one"
    )
    return f"{story['labels']} labels, {meanwhile}; {back}: {format_recovered(story)} of what was lost is back"


def format_recovered(story: JsonMapping) -> str:
    """A share; chance may make it more than all."""
    return format_percent(story["regained"]) if story["regained"] < 1 else "all"


def describe_answers(traffic: JsonMapping) -> str:
    """How customers fared."""
    return f"{format_percent(traffic['accuracy'])} of {traffic['requests']:,} right"


def summarize_demo(records: DemoRecords) -> dict[str, str]:
    """All of it in a line for each chapter."""
    sent = records.story["sent"]
    return {
        "plan": f"{describe_planned(records.plan)}; {describe_confirmation(records.confirm)}",
        "model": describe_fine_tuning(records.run, records.bundle),
        "service": describe_answers(sent["clean"]),
        "drift": f"{describe_answers(sent['drift'])}; {describe_verdict(records.verdict)}",
        "remedy": describe_recovery(records.story),
    }


def accuracy_figure(traffic_by_phase: Mapping[str, JsonMapping]) -> go.Figure:
    """What was right, chapter by chapter."""
    values = [traffic_by_phase[name]["accuracy"] for name in PHASE_TITLES]
    drawn = go.Figure()
    drawn.add_bar(
        x=list(PHASE_TITLES.values()),
        y=values,
        text=[format_percent(value) for value in values],
        textposition="outside",
        marker_color=[BLUE, ORANGE, GREEN, GREEN],
    )
    drawn.update_yaxes(title_text="requests answered right", tickformat=".0%", range=[0, 1.1])
    return apply_theme(drawn).update_layout(showlegend=False)


def build_demo_page(records: DemoRecords) -> Page:
    """With the way to the page of each chapter."""
    says = "Of the pictures sent in each part of the story, how many the service knew."
    shown = Panel(name="right", figure=accuracy_figure(records.story["sent"]), caption=says)
    chapters = zip(records.story["chapters"], summarize_demo(records).values(), strict=True)
    sections = [Section(title="What customers saw", paragraphs=[f"{records.verdict['why']}."], parts=[shown])]
    for at, (one, line) in enumerate(chapters, 1):
        sections.append(Section(title=f"{at}. {one['title']}: {format_seconds(one['seconds'])}", paragraphs=[line]))
    links = [
        Link("the curve", "sweep/curve.html"),
        Link("how it scales", "sweep/scaling.html"),
        Link("the fine-tuning", "vending/run.html"),
        Link("the drift", "drift/drift.html"),
        Link("all experiments", "experiments.html"),
    ]
    lead = f"Told in {format_seconds(records.story['seconds'])}."
    return Page(title="Equipoise: the whole story", lead=lead, sections=sections, links=links)
