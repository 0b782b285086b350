"""Panels of a drift verdict: charts against their thresholds, cause, predicted classes and sample images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from dashboards.page import FactList, ImageGallery, Note, Panel, Section, SectionPart, Table, TimeCell
from dashboards.panels.condition_shares import build_condition_panel
from dashboards.panels.drift_words import EXAMPLE_WORDS, READING_OF_ANSWERS, READING_OF_BOX_COUNTS
from dashboards.theme import (
    BLUE,
    NEUTRAL_COLOR,
    ORANGE,
    apply_theme,
    format_interval,
    format_significant,
    format_utc,
    series_color,
)
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.verdict import (
    ChartEffect,
    ChartHistory,
    CorruptionEffect,
    DatasetVerdict,
    StreamVerdict,
    Verdict,
)
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.formatting import capitalize_first, format_rounded, format_share, pluralize
from equipoise.planning.interval import IntervalEstimate

CaptionedImages = Sequence[tuple[bytes, str]]

MAX_CHART_LINES = 6  # the highest charts are drawn over time
MAX_THRESHOLD_FACTOR = 4  # the vertical axis ends at so many thresholds
MAX_CHART_BARS = 12  # the highest charts are drawn as bars
MAX_CLASS_BARS = 40
STATE_SENTENCES = {
    "ok": "The {} look like those on which the model was evaluated.",
    "drift": "The {} no longer look like those on which the model was evaluated.",
    "unknown": "It is unknown whether the {} still look like those on which the model was evaluated.",
}
UNKNOWN_REMEDY = (
    "Where {} are too few, wait for more of them. Where the reference is missing, publish the bundle again without"
    " `--no-drift`, and serve it with `drift=true`."
)


def chart_history_figure(chart_history: ChartHistory, verdict: Verdict) -> go.Figure:
    """Draw the highest charts over the answered examples, with the threshold, begin of the change and alarm."""
    figure, images, words = go.Figure(), chart_history.image_numbers, EXAMPLE_WORDS[verdict.kind]
    peaks = {name: max(values, default=0.0) for name, values in chart_history.charts.items()}
    limit = max(chart_history.threshold, default=0.0) * MAX_THRESHOLD_FACTOR  # far above it, differences say little
    top = max(min(max(peaks.values(), default=0.0), limit), 1.0) * 1.05
    for index, name in enumerate(sorted(peaks, key=lambda chart: -peaks[chart])[:MAX_CHART_LINES]):
        figure.add_scatter(
            x=images,
            y=chart_history.charts[name],
            mode="lines",
            line={"color": series_color(index), "shape": "hv"},
            name=name,
        )
    figure.add_scatter(
        x=images,
        y=chart_history.threshold,
        mode="lines",
        line={"color": NEUTRAL_COLOR, "dash": "dash", "width": 2},
        name="alarm threshold",
    )
    if isinstance(verdict, StreamVerdict) and (since := verdict.since):
        alarm_number = since.alarm.image_number if since.alarm else None
        marks = [(verdict.images - since.images_ago, "change began", "dot"), (alarm_number, "alarm", "solid")]
        for number, label, dash in marks:
            if images and number is not None and number >= images[0] - (images[-1] - images[0]):
                line = {"dash": dash, "color": NEUTRAL_COLOR, "width": 2}
                figure.add_scatter(
                    x=[number, number], y=[0, top], mode="lines", line=line, hoverinfo="skip", name=label
                )
    figure.update_xaxes(title_text=words.number_axis)
    figure.update_yaxes(title_text=f"rarity without drift, ln({words.plural})", range=[0, top])
    return apply_theme(figure, 420)


def chart_bars_figure(verdict: Verdict) -> go.Figure:
    """Draw the charts of a set of examples as bars, each with its threshold."""
    charts = sorted(verdict.charts, key=lambda chart: chart.value - chart.threshold)[-MAX_CHART_BARS:]
    figure = go.Figure()
    for name, color, is_alarm in (("alarm", ORANGE, True), ("below the threshold", BLUE, False)):
        shown = [chart for chart in charts if (chart.value >= chart.threshold) == is_alarm]
        values, names = [chart.value for chart in shown], [chart.name for chart in shown]
        figure.add_bar(x=values, y=names, orientation="h", marker_color=color, name=name, hovertemplate="%{x:,.3~r}")
    names, thresholds = [chart.name for chart in charts], [chart.threshold for chart in charts]
    marker = {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": NEUTRAL_COLOR}}
    hover = "%{x:,.3~r}"
    figure.add_scatter(
        x=thresholds, y=names, mode="markers", marker=marker, name="alarm threshold", hovertemplate=hover
    )
    figure.update_xaxes(title_text="-log10 of the p-value without drift")
    figure.update_yaxes(categoryorder="array", categoryarray=names)
    return apply_theme(figure, 90 + 26 * len(charts)).update_layout(barmode="overlay")


def class_shares_figure(verdict: Verdict) -> go.Figure:
    """Draw the shares of the predicted classes, or of ranges of predicted numbers, beside those of the reference."""
    now, reference = normalize_counts(verdict.classes), normalize_counts(verdict.usual)
    names = sorted({*now, *reference}, key=lambda name: -abs(now.get(name, 0) - reference.get(name, 0)))
    names = [name for name in (reference or now) if name in names[:MAX_CLASS_BARS]]
    figure = go.Figure()
    for label, shares, color in (("reference", reference, NEUTRAL_COLOR), ("now", now, BLUE)):
        figure.add_bar(x=names, y=[shares.get(name, 0.0) for name in names], name=label, marker_color=color)
    answer = "boxes found" if verdict.kind == "boxes" else "answer"
    figure.update_xaxes(type="category", title_text="predicted class" if verdict.has_accuracy else answer)
    figure.update_yaxes(title_text=f"share of {verdict.example_name}", tickformat=".0%", rangemode="tozero")
    return apply_theme(figure).update_layout(barmode="group")


def normalize_counts(counts: Mapping[str, int]) -> dict[str, float]:
    """Return each count as a share of their sum; an empty dictionary if the sum is 0."""
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def verdict_facts(verdict: Verdict) -> dict[str, str]:
    """Return the facts of a verdict in words: state, cause, condition, begin, estimated accuracy, false-alarm rate."""
    words = EXAMPLE_WORDS[verdict.kind]
    facts = {"state": verdict.state, words.plural: f"{verdict.images:,}"}
    if isinstance(verdict, DatasetVerdict) and verdict.piece_characters:
        facts["length of a text"] = f"{verdict.piece_characters} characters"
    if verdict.cause:
        facts["cause"] = verdict.cause
    if condition := verdict.describe_condition():
        facts["condition"] = condition
    if not isinstance(verdict, StreamVerdict):
        return facts | accuracy_facts(verdict)
    if since := verdict.since:
        facts["change began"] = f"{since.images_ago:,} {words.plural} ago"
        facts["change began, UTC"] = since.at.removesuffix("+00:00").replace("T", " ")
        if since.alarm:
            facts["alarm"] = f"at {words.singular} number {since.alarm.image_number:,} of {verdict.images:,}"
    facts |= accuracy_facts(verdict)
    if verdict.run_length:
        facts["false-alarm rate requested"] = f"1 in {verdict.run_length:,.0f} requests"
    if check := verdict.verified:
        facts["false-alarm rate when published"] = (
            f"1 in {format_rounded(check.realised)} requests, {format_rounded(check.low)} to "
            f"{format_rounded(check.high)} with 95 % probability (1 in {check.asked:,.0f} requested)"
        )
    if verdict.ticks:
        facts["replicas"] = f"{verdict.replicas} ({pluralize(verdict.ticks.lost, 'report')} lost)"
    return facts


def accuracy_facts(verdict: Verdict) -> dict[str, str]:
    """Return the estimated accuracy, unless the model predicts no classes, and the error measured with labels."""
    facts = {}
    if verdict.has_accuracy:
        accuracy = verdict.accuracy
        text = format_accuracy(accuracy) if isinstance(accuracy, AccuracyEstimate) else "unknown"
        facts["estimated accuracy, without labels"] = text
    if isinstance(verdict, DatasetVerdict) and verdict.measured:
        facts[f"{verdict.measured.metric}, measured"] = verdict.measured.describe_values(verdict.example_name)
    return facts


def format_accuracy(estimate: AccuracyEstimate) -> str:
    """Format an accuracy with its interval, as percentages."""
    return f"{estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"


def causes_table(verdict: Verdict) -> Table | None:
    """Return the table of causes and of the runner-up, each with the size of its effect; None if none was found."""
    named = [(effect.cause, effect) for effect in verdict.effects]
    if verdict.runner_up:
        named.append((f"{verdict.runner_up.cause} (runner-up)", verdict.runner_up))
    rows = [[name, effect.detail, format_effect(effect), format_share(effect.explained)] for name, effect in named]
    return Table(name="causes", columns=["cause", "detail", "size", "share explained"], rows=rows) if rows else None


def format_effect(effect: CorruptionEffect | ChartEffect) -> str:
    """Format the size of an effect with its interval, if it has one, and its unit."""
    if effect.low is None or effect.high is None:
        return f"{format_significant(effect.value)} {effect.unit}".strip()
    return format_interval(IntervalEstimate(value=effect.value, low=effect.low, high=effect.high), effect.unit)


def charts_table(verdict: Verdict) -> Table:
    """Return the table of all charts with threshold and effect."""
    rows = [
        [chart.name, chart.value, chart.threshold, format_effect(chart.effect) if chart.effect else None]
        for chart in verdict.charts
    ]
    return Table(name="charts", columns=["chart", "value", "alarm threshold", "effect"], rows=rows)


def sources_table(verdict: Verdict) -> Table | None:
    """Return the table of sources (cameras, shops) that clients named; None if there are none."""
    sources = verdict.sources if isinstance(verdict, StreamVerdict) else {}
    rows = [[name, source.state, source.images, source.cause] for name, source in sources.items()]
    return (
        Table(name="sources", columns=["source", "state", verdict.example_name, "cause"], rows=rows) if rows else None
    )


def events_table(events: Sequence[DriftEvent]) -> Table | None:
    """Return the table of events, the latest first; None if there are none."""
    rows = [[TimeCell(format_utc(event.time)), event.event, event.stream, event.reason] for event in reversed(events)]
    return Table(name="events", columns=["time, UTC", "event", "stream", "cause"], rows=rows) if rows else None


def build_drift_sections(
    verdict: Verdict,
    chart_history: ChartHistory | None = None,
    events: Sequence[DriftEvent] = (),
    drifted_images: CaptionedImages = (),
    reference_images: CaptionedImages = (),
    prefix: str = "",
    moved_examples: Table | None = None,
) -> list[Section]:
    """Build the sections of a verdict; `prefix` keeps panel names unique where several models share a page.

    `moved_examples` holds the rows or texts that changed most, in place of images.
    """
    paragraphs = [
        STATE_SENTENCES[verdict.state].format(verdict.example_name),
        *([f"{capitalize_first(verdict.why)}."] if verdict.why else []),
    ]
    paragraphs += [UNKNOWN_REMEDY.format(verdict.example_name)] if verdict.state == "unknown" else []
    parts: list[SectionPart] = [FactList(name=f"{prefix}verdict", facts=verdict_facts(verdict))]
    for table in (causes_table(verdict), sources_table(verdict)):
        parts += [replace(table, name=f"{prefix}{table.name}")] if table else []
    if isinstance(verdict, StreamVerdict) and verdict.reference_warning:
        parts.append(Note(name=f"{prefix}reference-warning", text=f"{capitalize_first(verdict.reference_warning)}."))
    sections = [Section(title="Verdict", paragraphs=paragraphs, parts=parts)]
    if panel := build_charts_panel(verdict, chart_history, prefix):
        sections.append(Section(title="Charts", parts=[panel]))
    if panel := build_condition_panel(verdict, chart_history, prefix):
        sections.append(Section(title="Conditions", parts=[panel]))
    if verdict.classes and verdict.kind != "text":
        sections.append(build_answers_section(verdict, prefix))
    if moved_examples:
        title = f"{capitalize_first(verdict.example_name)} that changed most"
        sections.append(Section(title=title, parts=[replace(moved_examples, name=f"{prefix}moved")]))
    galleries = list_galleries(drifted_images, reference_images, prefix)
    sections += [Section(title="Images", parts=galleries)] if galleries else []
    if table := events_table(events):
        sections.append(Section(title="Events", parts=[replace(table, name=f"{prefix}{table.name}")]))
    return sections


def list_galleries(
    drifted_images: CaptionedImages, reference_images: CaptionedImages, prefix: str
) -> list[SectionPart]:
    """Return the galleries of images now and in the reference; without images none."""
    galleries = {"moved": ("Images now, the most informative first.", drifted_images)}
    galleries["usual"] = ("Images of the reference.", reference_images)
    return [
        ImageGallery(name=f"{prefix}{name}", captioned_pngs=images, caption=caption)
        for name, (caption, images) in galleries.items()
        if images
    ]


def build_answers_section(verdict: Verdict, prefix: str) -> Section:
    """Build the section of the predicted classes, or of the ranges of predicted numbers."""
    figure, name = class_shares_figure(verdict), f"{prefix}classes-panel"
    if verdict.has_accuracy:
        caption = "Shares of the predicted classes, beside those of the reference."
        reading = EXAMPLE_WORDS[verdict.kind].reading_of_classes
        return Section(title="Classes", parts=[Panel(name=name, figure=figure, caption=caption, reading=reading)])
    if verdict.kind == "boxes":
        caption = "Shares of the images by the number of boxes found, beside those of the reference."
        panel = Panel(name=name, figure=figure, caption=caption, reading=READING_OF_BOX_COUNTS)
        return Section(title="Boxes", parts=[panel])
    caption = "Shares of the answers in each quarter of those on the reference."
    return Section(
        title="Answers", parts=[Panel(name=name, figure=figure, caption=caption, reading=READING_OF_ANSWERS)]
    )


def build_charts_panel(verdict: Verdict, chart_history: ChartHistory | None, prefix: str) -> Panel | None:
    """Build the panel of the charts: over the examples if there is a history, else as bars; None without charts."""
    words = EXAMPLE_WORDS[verdict.kind]
    if chart_history and chart_history.image_numbers:
        figure, reading = chart_history_figure(chart_history, verdict), words.reading_of_history
        caption = f"Each chart over the {words.plural} answered; a chart that reaches the dashed line raises an alarm."
    elif verdict.charts:
        figure, reading = chart_bars_figure(verdict), words.reading_of_bars
        caption = "Each chart against its threshold; orange charts have reached it."
    else:
        return None
    table = replace(charts_table(verdict), name=f"{prefix}charts")
    return Panel(name=f"{prefix}charts-panel", figure=figure, caption=caption, reading=reading, data_table=table)


def prefix_title(model: str, section: Section) -> Section:
    """Prefix the title of a section with the name of its model."""
    return replace(section, title=f"{model}: {section.title.lower()}")
