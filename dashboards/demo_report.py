"""Report of a demo, from the records that it wrote: in words and as a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.page import Link, Page, Panel, Section
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import BLUE, GREEN, ORANGE, apply_theme, format_percent, format_seconds
from equipoise.errors import EquipoiseError
from equipoise.storage.atomic import read_json

JsonMapping = Mapping[str, Any]
STORY_FILE = "story.json"
EMPTY_STORY_JSON: JsonMapping = {"demo": 1, "chapters": [], "sent": {}}
"""story.json of a demo that has just started"""
PHASE_TITLES = {
    "clean": "original light",
    "drift": "new light",
    "adapted": "adapted, new light",
    "again": "adapted, old light",
}
"""titles of the phases in which requests were sent, in order"""


@dataclass(frozen=True)
class DemoRecords:
    """Records of a demo, which contain every number of its report."""

    story: JsonMapping
    plan: JsonMapping
    confirm: JsonMapping
    run: JsonMapping
    bundle: JsonMapping
    verdict: JsonMapping


def is_demo_folder(folder: Path) -> bool:
    """Return whether a folder holds the story.json of a demo."""
    try:
        story = read_json(folder / STORY_FILE)
    except (EquipoiseError, OSError):
        return False
    return isinstance(story, dict) and EMPTY_STORY_JSON.keys() <= story.keys()


def read_demo_records(folder: Path) -> DemoRecords:
    """Read the records that the chapters of a demo wrote."""
    names = ("sweep/plan", "sweep/confirm", "vending/record", "bundles/vending/bundle", "drift/verdict")
    return DemoRecords(read_json(folder / STORY_FILE), *(read_json(folder / f"{name}.json") for name in names))


def describe_planned(plan: JsonMapping) -> str:
    """Return the plan of a sweep in words: cluster shape, batch size, learning rate and predicted time."""
    chosen = plan["plan"]
    seconds = chosen["seconds"]
    return (
        f"{format_cluster_shape(chosen['nodes'], chosen['workers'])} x {chosen['batch']}"
        f" at a learning rate of {chosen['lr']:.3g}: predicted {format_seconds(seconds['value'])} to the target"
        f" ({format_seconds(seconds['low'])} to {format_seconds(seconds['high'])})"
    )


def describe_confirmation(confirmation: JsonMapping) -> str:
    """Return the result of the confirmation run in words, against the predicted interval."""
    if confirmation["seconds"] is None:
        return "the confirmation run did not reach the target"
    took = f"confirmation run: {format_seconds(confirmation['seconds'])}"
    if confirmation["inside"]:
        return f"{took}, inside the predicted interval"
    examples, step = (confirmation[name] for name in ("examples", "step"))
    return (
        f"{took}, outside the predicted interval, with {examples['ratio']:.2f} times the predicted examples and"
        f" {step['ratio']:.2f} times the predicted time per step"
    )


def describe_fine_tuning(run: JsonMapping, bundle: JsonMapping) -> str:
    """Return the result of fine-tuning in words: test accuracy, examples and engine of the bundle."""
    seen, engine = run["laps"][-1]["seen"], bundle["engine"]["name"]
    return f"test accuracy {format_percent(bundle['metrics']['accuracy'])} after {seen:,} examples; engine {engine}"


def describe_verdict(verdict: JsonMapping) -> str:
    """Return the cause of a drift verdict in words, and since when."""
    return f"cause: {verdict['cause']}, for the last {verdict['since']['images']:,} of {verdict['images']:,} requests"


def describe_recovery(story: JsonMapping) -> str:
    """Return in words what the adaptation took, and how much accuracy it recovered."""
    sent = story["sent"]
    meanwhile, answers = sent["meanwhile"], [describe_answers(sent[name]) for name in ("adapted", "again")]
    return (
        f"{story['labels']} labels, {meanwhile['requests']:,} requests in the meantime,"
        f" {meanwhile['unanswered']} unanswered; {answers[0]} under the new light, {answers[1]} under the old light:"
        f" {format_recovered(story)} of the lost accuracy recovered"
    )


def format_recovered(story: JsonMapping) -> str:
    """Format the recovered share of the lost accuracy; chance may bring it above 100 %, which reads `all`."""
    return format_percent(story["regained"]) if story["regained"] < 1 else "all"


def describe_answers(traffic: JsonMapping) -> str:
    """Return the accuracy of the answers to the requests of one phase in words."""
    return f"{format_percent(traffic['accuracy'])} of {traffic['requests']:,} answers correct"


def summarize_demo(records: DemoRecords) -> dict[str, str]:
    """Return the summary of a demo, one line per chapter."""
    sent = records.story["sent"]
    return {
        "plan": f"{describe_planned(records.plan)}; {describe_confirmation(records.confirm)}",
        "model": describe_fine_tuning(records.run, records.bundle),
        "service": describe_answers(sent["clean"]),
        "drift": f"{describe_answers(sent['drift'])}; {describe_verdict(records.verdict)}",
        "remedy": describe_recovery(records.story),
    }


def accuracy_figure(traffic_by_phase: Mapping[str, JsonMapping]) -> go.Figure:
    """Draw the accuracy of the answers in each phase as bars."""
    values = [traffic_by_phase[name]["accuracy"] for name in PHASE_TITLES]
    figure = go.Figure()
    figure.add_bar(
        x=list(PHASE_TITLES.values()),
        y=values,
        text=[format_percent(value) for value in values],
        textposition="outside",
        marker_color=[BLUE, ORANGE, GREEN, GREEN],
    )
    figure.update_yaxes(title_text="requests answered correctly", tickformat=".0%", range=[0, 1.1])
    return apply_theme(figure).update_layout(showlegend=False)


def build_demo_page(records: DemoRecords) -> Page:
    """Build the page of a demo, with links to the pages of its chapters."""
    caption = "Share of requests that the service answered correctly, in each phase of the demo."
    panel = Panel(name="right", figure=accuracy_figure(records.story["sent"]), caption=caption)
    chapters = zip(records.story["chapters"], summarize_demo(records).values(), strict=True)
    sections = [Section(title="Accuracy of the answers", paragraphs=[f"{records.verdict['why']}."], parts=[panel])]
    for number, (chapter, line) in enumerate(chapters, 1):
        title = f"{number}. {chapter['title']}: {format_seconds(chapter['seconds'])}"
        sections.append(Section(title=title, paragraphs=[line]))
    links = [
        Link("the trade-off", "sweep/curve.html"),
        Link("how it scales", "sweep/scaling.html"),
        Link("the fine-tuning", "vending/run.html"),
        Link("the drift", "drift/drift.html"),
        Link("all experiments", "experiments.html"),
    ]
    lead = f"The demo took {format_seconds(records.story['seconds'])}."
    return Page(title="Equipoise: demo", lead=lead, sections=sections, links=links)
