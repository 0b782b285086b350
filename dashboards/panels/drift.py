"""Whether requests look as they should: each chart against its threshold, the cause, the classes, the pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from dashboards.page import FactList, ImageGallery, Note, Panel, Section, SectionPart, Table
from dashboards.theme import BLUE, NEUTRAL_COLOR, ORANGE, apply_theme, format_utc, series_color

VerdictJson = Mapping[str, Any]
CaptionedImages = Sequence[tuple[bytes, str]]

MAX_CHART_LINES = 6  # charts that are drawn over time: the highest
MAX_THRESHOLD_FACTOR = 4  # thresholds, up to which charts are drawn
MAX_CHART_BARS = 12  # charts of a set that are drawn: the highest
MAX_CLASS_BARS = 40
STATE_SENTENCES = {
    "ok": "Requests look as the pictures on which the model was judged.",
    "drift": "Requests no longer look as the pictures on which the model was judged.",
    "unknown": "Nobody can tell whether requests look as they should.",
}


def chart_history_figure(chart_history: Mapping[str, Any], verdict: VerdictJson) -> go.Figure:
    """The highest charts over the requests, with the threshold, where the change began, and the alarm."""
    figure, images = go.Figure(), chart_history["images"]
    peaks = {name: max(values, default=0.0) for name, values in chart_history["charts"].items()}
    for at, name in enumerate(sorted(peaks, key=lambda one: -peaks[one])[:MAX_CHART_LINES]):
        figure.add_scatter(
            x=images,
            y=chart_history["charts"][name],
            mode="lines",
            line={"color": series_color(at), "shape": "hv"},
            name=name,
        )
    figure.add_scatter(
        x=images,
        y=chart_history["threshold"],
        mode="lines",
        line={"color": NEUTRAL_COLOR, "dash": "dash", "width": 2},
        name="alarm at",
    )
    if since := verdict.get("since"):
        marks = [(verdict["images"] - since["images"], "began"), (since["alarm"]["images"], "alarm")]
        for place, words in marks:
            if images and place is not None and place >= images[0] - (images[-1] - images[0]):
                figure.add_vline(place, line={"dash": "dot", "color": ORANGE}, annotation_text=words)
    most = max(peaks.values(), default=0.0)
    limit = max(chart_history["threshold"], default=0.0) * MAX_THRESHOLD_FACTOR  # far above it, how far says little
    figure.update_xaxes(title_text="requests")
    figure.update_yaxes(title_text="how rare such a height is (log)", range=[0, max(min(most, limit), 1.0) * 1.05])
    return apply_theme(figure, 420)


def chart_bars_figure(verdict: VerdictJson) -> go.Figure:
    """The charts of a set of pictures, each with its threshold."""
    some = sorted(verdict["charts"], key=lambda one: one["value"] - one["threshold"])[-MAX_CHART_BARS:]
    names = [one["name"] for one in some]
    shades = [ORANGE if one["value"] >= one["threshold"] else BLUE for one in some]
    marker = {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": NEUTRAL_COLOR}}
    figure = go.Figure()
    figure.add_bar(x=[one["value"] for one in some], y=names, orientation="h", marker_color=shades, name="value")
    figure.add_scatter(x=[one["threshold"] for one in some], y=names, mode="markers", marker=marker, name="alarm at")
    figure.update_xaxes(title_text="how rare without drift: one in 10 to the")
    return apply_theme(figure, 90 + 26 * len(some))


def class_shares_figure(verdict: VerdictJson) -> go.Figure:
    """Shares of what was predicted, beside those of the reference."""
    now, usual = (normalize_counts(verdict.get(part) or {}) for part in ("classes", "usual"))
    names = sorted({*now, *usual}, key=lambda one: -abs(now.get(one, 0) - usual.get(one, 0)))[:MAX_CLASS_BARS]
    names = [name for name in (usual or now) if name in names]
    figure = go.Figure()
    for words, held, shade in (("reference", usual, NEUTRAL_COLOR), ("now", now, BLUE)):
        figure.add_bar(x=names, y=[held.get(name, 0.0) for name in names], name=words, marker_color=shade)
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text="share of pictures", tickformat=".0%", rangemode="tozero")
    return apply_theme(figure).update_layout(barmode="group")


def normalize_counts(counts: Mapping[str, int]) -> dict[str, float]:
    """Of a whole."""
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items()} if whole else {}


def verdict_facts(verdict: VerdictJson) -> dict[str, str]:
    """The verdict in numbers."""
    accuracy, since = verdict.get("accuracy"), verdict.get("since")
    found = {"state": verdict["state"], "pictures": f"{verdict['images']:,}"}
    if verdict.get("cause"):
        found["cause"] = verdict["cause"]
    if since:
        found["began"] = f"{since['images']:,} requests ago"
        found["began, UTC"] = since["at"].removesuffix("+00:00").replace("T", " ")
    found["accuracy, without labels"] = format_accuracy(accuracy) if isinstance(accuracy, Mapping) else "unknown"
    if run_length := verdict.get("run_length"):
        found["asked"] = f"a false alarm in {run_length:,.0f} requests"
    if verified := verdict.get("verified"):
        found["when published"] = f"one in {verified['realised']:,.0f}, of {verified['asked']:,.0f} asked"
    if ticks := verdict.get("ticks"):
        found["replicas"] = f"{verdict.get('replicas', 0)}, {ticks['lost']} reports lost"
    return found


def format_accuracy(estimate: Mapping[str, Any]) -> str:
    """An accuracy with its interval."""
    return f"{estimate['value']:.0%} ({estimate['low']:.0%} to {estimate['high']:.0%})"


def causes_table(verdict: VerdictJson) -> Table | None:
    """What changed, in units."""
    rows = [
        [one["cause"], one["detail"], one["value"], one["low"], one["high"], one["unit"], f"{one['explained']:.0%}"]
        for one in verdict.get("effects") or []
    ]
    if not rows:
        return None
    return Table(name="causes", columns=["cause", "how", "by", "least", "most", "unit", "explains"], rows=rows)


def charts_table(verdict: VerdictJson) -> Table:
    """All charts."""
    rows = []
    for one in verdict["charts"]:
        effect = one["effect"] or {}
        ends = [effect.get(name) for name in ("value", "low", "high", "unit")]
        rows.append([one["name"], one["value"], one["threshold"], *ends])
    return Table(name="charts", columns=["chart", "value", "alarm at", "effect", "least", "most", "unit"], rows=rows)


def sources_table(verdict: VerdictJson) -> Table | None:
    """Of each camera or shop that names itself."""
    rows = [[name, one["state"], one["images"], one.get("cause")] for name, one in verdict.get("sources", {}).items()]
    return Table(name="sources", columns=["source", "state", "pictures", "cause"], rows=rows) if rows else None


def events_table(events: Sequence[Mapping[str, Any]]) -> Table | None:
    """What happened, the latest first."""
    rows = [
        [format_utc(one["time"]), one["event"], one.get("stream", ""), one.get("cause") or one.get("why", "")]
        for one in reversed(events)
    ]
    return Table(name="events", columns=["when", "what", "of", "cause"], rows=rows) if rows else None


def build_drift_sections(
    verdict: VerdictJson,
    chart_history: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    drifted_images: CaptionedImages = (),
    reference_images: CaptionedImages = (),
    prefix: str = "",
) -> list[Section]:
    """All there is to see; `prefix` begins the names of panels where several models share a page."""
    words = [STATE_SENTENCES[verdict["state"]], *([f"{verdict['why']}."] if verdict.get("why") else [])]
    parts: list[SectionPart] = [FactList(name=f"{prefix}verdict", facts=verdict_facts(verdict))]
    for table in (causes_table(verdict), sources_table(verdict)):
        parts += [table] if table else []
    found = [Section(title="Verdict", paragraphs=words, parts=parts)]
    if chart_history and chart_history["images"]:
        says = "Each chart over the requests; one that reaches the dashed line is an alarm."
        panel = Panel(
            name=f"{prefix}charts-panel",
            figure=chart_history_figure(chart_history, verdict),
            caption=says,
            data_table=charts_table(verdict),
        )
        found.append(Section(title="Charts", parts=[panel]))
    elif verdict["charts"]:
        says = "Each chart against its threshold; orange ones have reached it."
        panel = Panel(
            name=f"{prefix}charts-panel",
            figure=chart_bars_figure(verdict),
            caption=says,
            data_table=charts_table(verdict),
        )
        found.append(Section(title="Charts", parts=[panel]))
    if verdict.get("classes"):
        says = "Shares of the classes that were predicted, beside those of the reference."
        panel = Panel(name=f"{prefix}classes-panel", figure=class_shares_figure(verdict), caption=says)
        found.append(Section(title="Classes", parts=[panel]))
    shown: list[SectionPart] = []
    shown += (
        [
            ImageGallery(
                name=f"{prefix}moved", captioned_pngs=drifted_images, caption="requests, those that say most first"
            )
        ]
        if drifted_images
        else []
    )
    shown += (
        [ImageGallery(name=f"{prefix}usual", captioned_pngs=reference_images, caption="the reference")]
        if reference_images
        else []
    )
    found += [Section(title="Pictures", parts=shown)] if shown else []
    if table := events_table(events):
        found.append(Section(title="What happened", parts=[table]))
    return found


def missing_verdict_section(reason: str) -> Section:
    """Where nothing is watched."""
    return Section(title="Verdict", parts=[Note(name="no-drift", text=reason)])


def prefix_title(model: str, section: Section) -> Section:
    """A section of one of several models."""
    return replace(section, title=f"{model}: {section.title.lower()}")
