"""Report of a demo, from the records that it wrote: in words and as a page."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

from dashboards.demo_story import DemoAct, DemoStory, PhaseAnswers, PhaseVerdict
from dashboards.page import Link, NumberCell, Page, Panel, Section, Table, TableCell
from dashboards.plan_confirmation import describe_plan_status
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import BLUE, GREEN, ORANGE, apply_theme, format_percent, format_seconds, format_time_interval
from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.bundle.manifest import Manifest
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.errors import EquipoiseError
from equipoise.formatting import capitalize_first, format_share
from equipoise.planning.document import PLAN_FILE, PlanDocument, PlanEntry
from equipoise.proportions import wilson_interval
from equipoise.storage.atomic import read_json

PHASE_TITLES = {
    "clean": "original light",
    "drift": "new light",
    "adapted": "adapted, new light",
    "again": "adapted, old light",
    "mixed": "adapted, both lights",
}
"""titles of the phases in which requests were sent, in order"""


BUNDLE_NAMES: dict[DemoAct, str] = {"pictures": "vending", "detection": "shelf"}
"""names of the run and of the first bundle of each act"""


@dataclass(frozen=True)
class DemoRecords:
    """Records of a demo, which contain every number of its report."""

    story: DemoStory
    plan: PlanDocument | None
    """plan that the first act sweeps for"""
    bundle: Manifest
    verdict: StreamVerdict


def is_demo_folder(folder: Path) -> bool:
    """Return whether a folder holds the story.json of a demo."""
    try:
        DemoStory.read(folder)
    except (EquipoiseError, OSError):
        return False
    return True


def read_demo_records(folder: Path) -> DemoRecords:
    """Read the records that the chapters of a demo wrote."""
    story = DemoStory.read(folder)
    return DemoRecords(
        story=story,
        plan=PlanDocument.read(folder / "sweep" / PLAN_FILE) if story.act == "pictures" else None,
        bundle=Manifest.read(folder / "bundles" / BUNDLE_NAMES[story.act] / MANIFEST_FILE),
        verdict=StreamVerdict.from_json(read_json(folder / "drift" / "verdict.json")),
    )


def describe_plan(plan: PlanEntry | None) -> str:
    """Return the plan of a sweep in words: cluster shape, batch size, learning rate and predicted time."""
    if plan is None:
        return "no plan"
    rate, seconds = "" if plan.lr is None else f" at a learning rate of {plan.lr:.3g}", plan.seconds
    return (
        f"{format_cluster_shape(plan.nodes, plan.workers)} x {plan.batch}{rate}:"
        f" predicted {format_time_interval(seconds)} to the target"
    )


def describe_model(bundle: Manifest) -> str:
    """Return the result of training in words: accuracy or precision on the test split, examples, and engine."""
    quality = f"after {bundle.seen:,} examples; engine {bundle.engine.name}"
    if bundle.kind != "boxes":
        return f"test accuracy {format_percent(bundle.classification.accuracy)} {quality}"
    metrics = bundle.detection
    precision = f"{metrics.average_precision:.3f} ({metrics.average_precision_50:.3f} at an overlap of one half)"
    return f"mean average precision {precision} on the test split {quality}"


def describe_labels(story: DemoStory) -> str:
    """Return in words who has drawn how many boxes."""
    if story.boxes is None:
        return f"{story.labels} labels"
    authors = " and ".join(f"{name} {count}" for name, count in story.boxes.by_author.items())
    return f"{story.boxes.boxes} boxes drawn in {story.labels} pictures: {authors}"


def describe_verdict(verdict: StreamVerdict) -> str:
    """Return the cause of a drift verdict in words, and since when."""
    since = f", for the last {verdict.since.images_ago:,} of {verdict.images:,} images" if verdict.since else ""
    return f"cause: {verdict.cause}{since}"


def describe_recovery(story: DemoStory) -> str:
    """Return in words what the adaptation took, and how much accuracy it recovered."""
    new_light, old_light = (describe_answers(story.sent[name]) for name in ("adapted", "again"))
    swap = story.swap
    meanwhile = f"{swap.requests:,} requests in the meantime, {swap.unanswered} unanswered; " if swap else ""
    return (
        f"{story.labels} labels, {meanwhile}{new_light} under the new light,"
        f" {old_light} under the old light: {format_recovered(story)} of the lost {name_quality(story)} recovered"
    )


def name_quality(story: DemoStory) -> str:
    """Return what an adaptation shall bring back."""
    return "mean average precision" if story.act == "detection" else "accuracy"


def format_recovered(story: DemoStory) -> str:
    """Format the recovered share of the lost accuracy; chance may bring it above 100 %, which reads `all`."""
    return format_percent(story.regained) if story.regained < 1 else "all"


def describe_phase_verdicts(story: DemoStory) -> dict[str, str]:
    """Return the service's verdict at the end of each phase after the swap in words, by phase."""
    return {
        name: f"{PHASE_TITLES[name]}: the verdict is {describe_state(verdict)}"
        for name, verdict in story.verdicts.items()
    }


def describe_state(verdict: PhaseVerdict) -> str:
    """Return the state of a verdict in words: with the share of each condition, and the reason if it is not `ok`."""
    reason = "" if verdict.state == "ok" else f" ({verdict.why})"
    shares = ", ".join(f"{format_share(share)} {name}" for name, share in verdict.conditions.items())
    return f"{verdict.state}{reason}{f'; requests look like: {shares}' if shares else ''}"


def verdicts_section(story: DemoStory) -> Section:
    """Build the section on the verdicts after the swap: a table of state and share of conditions by phase."""
    conditions = list(dict.fromkeys(name for verdict in story.verdicts.values() for name in verdict.conditions))
    rows: list[list[TableCell]] = []
    for name, verdict in story.verdicts.items():
        shares = [verdict.conditions.get(condition) for condition in conditions]
        cells = [NumberCell(share, format_share(share)) for share in shares]
        rows.append([PHASE_TITLES[name], story.sent[name].requests, verdict.state, *cells])
    table = Table(name="verdicts", columns=["phase", "requests", "verdict", *conditions], rows=rows)
    text = (
        "What the service says at the end of each phase after the swap, and the share of the phase's requests that look"
        " like each condition the model knows. A light that it has learned is no longer a drift, alone or mixed."
    )
    reasons = [
        f"{capitalize_first(PHASE_TITLES[name])}: {verdict.why}."
        for name, verdict in story.verdicts.items()
        if verdict.state != "ok"
    ]
    return Section(title="Drift after the swap", paragraphs=[text, *reasons], parts=[table])


def describe_answers(answers: PhaseAnswers) -> str:
    """Return the accuracy of the answers to the requests of one phase in words."""
    precision = (
        "" if answers.average_precision is None else f" (mean average precision {answers.average_precision:.3f})"
    )
    return f"{format_percent(answers.accuracy)} of {answers.requests:,} answers correct{precision}"


def summarize_demo(records: DemoRecords) -> dict[str, str]:
    """Return the summary of a demo, one line per chapter."""
    story = records.story
    plan = {} if records.plan is None else {"plan": summarize_plan(records.plan)}
    labels = {"labels": describe_labels(story)} if story.boxes else {}
    return {
        **plan,
        "model": describe_model(records.bundle),
        "service": describe_answers(story.sent["clean"]),
        "drift": f"{describe_answers(story.sent['drift'])}; {describe_verdict(records.verdict)}",
        **labels,
        "remedy": describe_recovery(story),
    }


def summarize_plan(document: PlanDocument) -> str:
    """Return a plan and what its confirmation found in words."""
    return f"{describe_plan(document.plan)}. {describe_plan_status(document)}"


def accuracy_figure(answers_by_phase: Mapping[str, PhaseAnswers]) -> go.Figure:
    """Draw the accuracy of the answers in each phase as bars."""
    values = [answers_by_phase[name].accuracy for name in PHASE_TITLES]
    figure = go.Figure()
    figure.add_bar(
        x=list(PHASE_TITLES.values()),
        y=values,
        text=[format_answers(answers_by_phase[name]) for name in PHASE_TITLES],
        textposition="outside",
        constraintext="none",
        cliponaxis=False,
        marker_color=[BLUE, ORANGE, GREEN, GREEN, GREEN],
    )
    labels = [title.replace(", ", "<br>").replace(" ", "<br>") for title in PHASE_TITLES.values()]
    figure.update_xaxes(title_text="phase of the demo", tickvals=[*PHASE_TITLES.values()], ticktext=labels, tickangle=0)
    figure.update_xaxes(tickfont_size=11)  # five labels beside each other fit a phone
    figure.update_yaxes(
        title_text="requests answered correctly", tickformat=".0%", range=[0, 1.25], tickvals=[0, 0.25, 0.5, 0.75, 1]
    )
    return apply_theme(figure).update_layout(showlegend=False)


def format_answers(answers: PhaseAnswers) -> str:
    """Format the accuracy of the answers of a phase, with its 95 % interval on a second line."""
    low, high = wilson_interval(answers.accuracy, answers.requests)
    return f"{format_percent(answers.accuracy)}<br>{100 * low:.0f}-{high:.0%}"


def build_demo_page(records: DemoRecords) -> Page:
    """Build the page of a demo, with links to the pages of its chapters."""
    caption = "Share of requests that the service answered correctly, with its 95 % interval, in each phase."
    if records.story.act == "detection":
        caption += " An answer is correct if it has a box for each product, with its name, and no other box."
    panel = Panel(name="right", figure=accuracy_figure(records.story.sent), caption=caption)
    chapters = zip(records.story.chapters, summarize_demo(records).values(), strict=True)
    sections = [
        Section(
            title="Accuracy of the answers",
            paragraphs=[f"{capitalize_first(records.verdict.why)}."],
            parts=[panel, *list_precisions(records.story)],
        )
    ]
    if records.story.verdicts:
        sections.append(verdicts_section(records.story))
    for number, (chapter, line) in enumerate(chapters, 1):
        title = f"{number}. {capitalize_first(chapter.title)}: {format_seconds(chapter.seconds)}"
        sections.append(Section(title=title, paragraphs=[capitalize_first(line).removesuffix(".") + "."]))
    sweep = [Link("the trade-off", "sweep/curve.html"), Link("how it scales", "sweep/scaling.html")]
    training = "the fine-tuning" if records.plan else "the training"
    links = [
        *(sweep if records.plan else []),
        Link(training, f"{BUNDLE_NAMES[records.story.act]}/run.html"),
        Link("the drift", "drift/drift.html"),
        Link("all records of the demo", "experiments.html"),
    ]
    lead = f"The demo took {format_seconds(records.story.seconds)}."
    return Page(title="Equipoise: demo", lead=lead, sections=sections, links=links)


def list_precisions(story: DemoStory) -> list[Table]:
    """Return a table of the mean average precision in each phase, if a detector has answered."""
    rows: list[list[TableCell]] = [
        [PHASE_TITLES[name], NumberCell(answers.average_precision, f"{answers.average_precision:.3f}")]
        for name, answers in story.sent.items()
        if answers.average_precision is not None
    ]
    return [Table(name="precisions", columns=["phase", "mean average precision"], rows=rows)] if rows else []
