"""Panels of a drift verdict: charts against their thresholds, cause, predicted classes and sample images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import plotly.graph_objects as go

from dashboards.page import FactList, ImageGallery, Note, Panel, Section, SectionPart, Table
from dashboards.theme import BLUE, NEUTRAL_COLOR, ORANGE, apply_theme, format_utc, series_color
from equipoise.drift.diagnosis.accuracy_estimate import AccuracyEstimate
from equipoise.drift.diagnosis.verdict import ChartHistory, StreamVerdict, Verdict
from equipoise.drift.monitor.entries import DriftEvent
from equipoise.formatting import format_share

CaptionedImages = Sequence[tuple[bytes, str]]

MAX_CHART_LINES = 6  # the highest charts are drawn over time
MAX_THRESHOLD_FACTOR = 4  # the vertical axis ends at so many thresholds
MAX_CHART_BARS = 12  # the highest charts are drawn as bars
MAX_CLASS_BARS = 40
STATE_SENTENCES = {
    "ok": "Requests look like the images on which the model was evaluated.",
    "drift": "Requests no longer look like the images on which the model was evaluated.",
    "unknown": "It is unknown whether requests still look like the images on which the model was evaluated.",
}


def chart_history_figure(chart_history: ChartHistory, verdict: Verdict) -> go.Figure:
    """Draw the highest charts over the answered images, with the threshold, the begin of the change, and the alarm."""
    figure, images = go.Figure(), chart_history.image_numbers
    peaks = {name: max(values, default=0.0) for name, values in chart_history.charts.items()}
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
        marks = [(verdict.images - since.images_ago, "change began"), (alarm_number, "alarm")]
        for number, label in marks:
            if images and number is not None and number >= images[0] - (images[-1] - images[0]):
                figure.add_vline(number, line={"dash": "dot", "color": ORANGE}, annotation_text=label)
    highest = max(peaks.values(), default=0.0)
    limit = (
        max(chart_history.threshold, default=0.0) * MAX_THRESHOLD_FACTOR
    )  # far above the threshold, differences say little
    figure.update_xaxes(title_text="image number, from the first one answered")
    figure.update_yaxes(
        title_text="log of how rare the value is without drift", range=[0, max(min(highest, limit), 1.0) * 1.05]
    )
    return apply_theme(figure, 420)


def chart_bars_figure(verdict: Verdict) -> go.Figure:
    """Draw the charts of a set of images as bars, each with its threshold."""
    charts = sorted(verdict.charts, key=lambda chart: chart.value - chart.threshold)[-MAX_CHART_BARS:]
    names = [chart.name for chart in charts]
    colors = [ORANGE if chart.value >= chart.threshold else BLUE for chart in charts]
    marker = {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": NEUTRAL_COLOR}}
    figure = go.Figure()
    values, thresholds = [chart.value for chart in charts], [chart.threshold for chart in charts]
    figure.add_bar(x=values, y=names, orientation="h", marker_color=colors, name="value")
    figure.add_scatter(x=thresholds, y=names, mode="markers", marker=marker, name="alarm threshold")
    figure.update_xaxes(title_text="-log10 of the p-value without drift")
    return apply_theme(figure, 90 + 26 * len(charts))


def class_shares_figure(verdict: Verdict) -> go.Figure:
    """Draw the shares of the predicted classes beside those of the reference."""
    now, reference = normalize_counts(verdict.classes), normalize_counts(verdict.usual)
    names = sorted({*now, *reference}, key=lambda name: -abs(now.get(name, 0) - reference.get(name, 0)))
    names = [name for name in (reference or now) if name in names[:MAX_CLASS_BARS]]
    figure = go.Figure()
    for label, shares, color in (("reference", reference, NEUTRAL_COLOR), ("now", now, BLUE)):
        figure.add_bar(x=names, y=[shares.get(name, 0.0) for name in names], name=label, marker_color=color)
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text="share of images", tickformat=".0%", rangemode="tozero")
    return apply_theme(figure).update_layout(barmode="group")


def normalize_counts(counts: Mapping[str, int]) -> dict[str, float]:
    """Return each count as a share of their sum; an empty dictionary if the sum is 0."""
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}


def verdict_facts(verdict: Verdict) -> dict[str, str]:
    """Return the facts of a verdict in words: state, cause, begin, estimated accuracy, false-alarm rate."""
    facts = {"state": verdict.state, "images": f"{verdict.images:,}"}
    if verdict.cause:
        facts["cause"] = verdict.cause
    accuracy = verdict.accuracy
    accuracy_text = format_accuracy(accuracy) if isinstance(accuracy, AccuracyEstimate) else "unknown"
    if not isinstance(verdict, StreamVerdict):
        return facts | {"estimated accuracy, without labels": accuracy_text}
    if since := verdict.since:
        facts["change began"] = f"{since.images_ago:,} images ago"
        facts["change began, UTC"] = since.at.removesuffix("+00:00").replace("T", " ")
        if since.alarm:
            facts["alarm"] = f"at image number {since.alarm.image_number:,} of {verdict.images:,}"
    facts["estimated accuracy, without labels"] = accuracy_text
    if verdict.run_length:
        facts["false-alarm rate requested"] = f"1 in {verdict.run_length:,.0f} requests"
    if check := verdict.verified:
        facts["false-alarm rate when published"] = (
            f"1 in {check.realised:,.0f} requests (1 in {check.asked:,.0f} requested),"
            f" drawn again and again from {check.held_out:,} held-out images"
        )
    if verdict.ticks:
        facts["replicas"] = f"{verdict.replicas}, {verdict.ticks.lost} reports lost"
    return facts


def format_accuracy(estimate: AccuracyEstimate) -> str:
    """Format an accuracy with its interval, as percentages."""
    return f"{estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"


def causes_table(verdict: Verdict) -> Table | None:
    """Return the table of causes, each with the size of its effect; None if no cause was found."""
    rows = [
        [
            *(effect.cause, effect.detail, effect.value, effect.low, effect.high, effect.unit),
            format_share(effect.explained),
        ]
        for effect in verdict.effects
    ]
    if not rows:
        return None
    return Table(
        name="causes", columns=["cause", "detail", "size", "low", "high", "unit", "share explained"], rows=rows
    )


def charts_table(verdict: Verdict) -> Table:
    """Return the table of all charts with threshold and effect."""
    rows = []
    for chart in verdict.charts:
        cells = [getattr(chart.effect, name, None) for name in ("value", "low", "high", "unit")]
        rows.append([chart.name, chart.value, chart.threshold, *cells])
    return Table(
        name="charts", columns=["chart", "value", "alarm threshold", "effect", "low", "high", "unit"], rows=rows
    )


def sources_table(verdict: Verdict) -> Table | None:
    """Return the table of sources (cameras, shops) that clients named; None if there are none."""
    sources = verdict.sources if isinstance(verdict, StreamVerdict) else {}
    rows = [[name, source.state, source.images, source.cause] for name, source in sources.items()]
    return Table(name="sources", columns=["source", "state", "images", "cause"], rows=rows) if rows else None


def events_table(events: Sequence[DriftEvent]) -> Table | None:
    """Return the table of events, the latest first; None if there are none."""
    rows = [[format_utc(event.time), event.event, event.stream, event.reason] for event in reversed(events)]
    return Table(name="events", columns=["time", "event", "stream", "cause"], rows=rows) if rows else None


def build_drift_sections(
    verdict: Verdict,
    chart_history: ChartHistory | None = None,
    events: Sequence[DriftEvent] = (),
    drifted_images: CaptionedImages = (),
    reference_images: CaptionedImages = (),
    prefix: str = "",
) -> list[Section]:
    """Build the sections of a verdict; `prefix` keeps panel names unique where several models share a page."""
    paragraphs = [STATE_SENTENCES[verdict.state], *([f"{verdict.why}."] if verdict.why else [])]
    parts: list[SectionPart] = [FactList(name=f"{prefix}verdict", facts=verdict_facts(verdict))]
    for table in (causes_table(verdict), sources_table(verdict)):
        parts += [table] if table else []
    if isinstance(verdict, StreamVerdict) and verdict.reference_warning:
        parts.append(Note(name=f"{prefix}reference-warning", text=f"{verdict.reference_warning}."))
    sections = [Section(title="Verdict", paragraphs=paragraphs, parts=parts)]
    if chart_history and chart_history.image_numbers:
        caption = "Each chart over the images answered; a chart that reaches the dashed line raises an alarm."
        panel = Panel(
            name=f"{prefix}charts-panel",
            figure=chart_history_figure(chart_history, verdict),
            caption=caption,
            data_table=charts_table(verdict),
        )
        sections.append(Section(title="Charts", parts=[panel]))
    elif verdict.charts:
        caption = "Each chart against its threshold; orange charts have reached it."
        panel = Panel(
            name=f"{prefix}charts-panel",
            figure=chart_bars_figure(verdict),
            caption=caption,
            data_table=charts_table(verdict),
        )
        sections.append(Section(title="Charts", parts=[panel]))
    if verdict.classes:
        caption = "Shares of the predicted classes, beside those of the reference."
        panel = Panel(name=f"{prefix}classes-panel", figure=class_shares_figure(verdict), caption=caption)
        sections.append(Section(title="Classes", parts=[panel]))
    galleries: list[SectionPart] = []
    if drifted_images:
        caption = "requests, the most informative first"
        galleries.append(ImageGallery(name=f"{prefix}moved", captioned_pngs=drifted_images, caption=caption))
    if reference_images:
        caption = "images of the reference"
        galleries.append(ImageGallery(name=f"{prefix}usual", captioned_pngs=reference_images, caption=caption))
    sections += [Section(title="Images", parts=galleries)] if galleries else []
    if table := events_table(events):
        sections.append(Section(title="Events", parts=[table]))
    return sections


def prefix_title(model: str, section: Section) -> Section:
    """Prefix the title of a section with the name of its model."""
    return replace(section, title=f"{model}: {section.title.lower()}")
