"""Panels of a service: rate, latency, batch sizes, refusals and versions, from snapshots of its metrics."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards.metrics_snapshot import MetricName, MetricsSnapshot
from dashboards.model_status import ModelStatus, VersionStatus
from dashboards.page import FactList, Note, Panel, Section, SectionPart, Table, TableCell
from dashboards.theme import AMBER, BLUE, ORANGE, apply_theme, format_significant, series_color

QUANTILE_COLORS = {0.5: BLUE, 0.9: AMBER, 0.99: ORANGE}
QUANTILE_NAMES = {0.5: "median", 0.9: "90th percentile", 0.99: "99th percentile"}
MAX_MARKED_POINTS = 40  # up to so many points get markers: a line alone would not show isolated points
REQUEST_OPTIONS = {
    "image": "-F image=@image.png",
    "boxes": "-F image=@image.png",
    "table": """-H 'content-type: application/json' -d '{"row": {"COLUMN": 1}}'""",
    "text": """-H 'content-type: application/json' -d '{"text": "To be, or not"}'""",
}
"""options of curl for a request, by the kind of data that a model takes"""
READING_OF_RATE = (
    "Refused requests got a 4xx status or a 503: the client sent something wrong, or the queue was full and it should"
    " try again. Failed ones got another 5xx status, which is a fault of the service."
)
READING_OF_LATENCY = (
    "The time from the request's headers to its answer. Half of the requests took less than the median, and one in a"
    " hundred took longer than the 99th percentile. The times are interpolated within the buckets of a histogram, so"
    " that they are right to about a bucket's width."
)
READING_OF_VERSIONS = (
    "A canary has a line of its own, which shows the share of the requests that it answers. A shadow answers nothing"
    " and has no line."
)
READING_OF_BATCHES = (
    "Requests that arrive while the model is busy are computed together; counts are since the service started. Where"
    " most batches hold one request, the service has time to spare; where most are of the largest size, one more"
    " replica would shorten the wait."
)
TIME_COLUMNS = ("time", "seconds")  # of the tables of increases, beside a column per label
OUTCOME_COLORS = {"answered": BLUE, "refused": AMBER, "failed": ORANGE}


def snapshot_deltas(snapshots: Sequence[MetricsSnapshot], metric: MetricName) -> pd.DataFrame:
    """Return the increase of a metric from each snapshot to the next, a column per label.

    Where a count fell, the service had restarted: then the whole count is the increase.
    """
    rows = []
    for before, after in pairwise(snapshots):
        old, new = before.counts(metric), after.counts(metric)
        added = {name: value - old.get(name, 0) if value >= old.get(name, 0) else value for name, value in new.items()}
        time = datetime.fromtimestamp(after.time, UTC)
        rows.append({"time": time, "seconds": after.time - before.time, **added})
    return pd.DataFrame(rows, columns=list(dict.fromkeys(["time", "seconds", *(name for row in rows for name in row)])))


def request_rates(snapshots: Sequence[MetricsSnapshot]) -> pd.DataFrame:
    """Return the requests per second by outcome: answered, refused, failed."""
    table = snapshot_deltas(snapshots, "requests")
    rates = table[["time", "seconds"]].copy()
    for name in OUTCOME_COLORS:
        columns = [label for label in table.columns if label not in TIME_COLUMNS and classify_status(label) == name]
        rates[name] = table[columns].fillna(0).sum(axis=1) / table.seconds
    return rates


def classify_status(status: str) -> str:
    """Return the outcome that an HTTP status stands for; a 503 counts as refused, not as failed."""
    if status.startswith("4") or status == "503":
        return "refused"
    return "failed" if status.startswith("5") else "answered"


def latency_quantiles(snapshots: Sequence[MetricsSnapshot]) -> pd.DataFrame:
    """Return latency quantiles of predictions in milliseconds, interpolated within the histogram's buckets."""
    table = snapshot_deltas(snapshots, "seconds")
    bounds = sorted((float(name), name) for name in table.columns if name not in TIME_COLUMNS)
    rows = []
    for _, row in table.iterrows():
        counts = [(bound, float(row[name])) for bound, name in bounds]
        quantiles: dict[Any, Any] = {q: bucket_quantile(counts, q) for q in QUANTILE_COLORS}
        rows.append({"time": row["time"], **quantiles})
    return pd.DataFrame(rows, columns=["time", *QUANTILE_COLORS])


def bucket_quantile(cumulative_counts: Sequence[tuple[float, float]], q: float) -> float | None:
    """Return a quantile in milliseconds from cumulative counts by upper bound; in the last bucket its lower bound."""
    total = cumulative_counts[-1][1] if cumulative_counts else 0.0
    if not total > 0:
        return None
    below, before = 0.0, 0.0
    for bound, count in cumulative_counts:
        if count >= q * total:
            if bound == float("inf"):
                return below * 1000
            return (below + (bound - below) * (q * total - before) / max(count - before, 1e-12)) * 1000
        below, before = bound, count
    return below * 1000


def batch_size_counts(snapshots: Sequence[MetricsSnapshot]) -> dict[str, float]:
    """Return the number of computed batches by size, since the service started."""
    cumulative = snapshots[-1].batches if snapshots else {}
    counts, before, below = {}, 0.0, 0
    for bound, name in sorted((float(name), name) for name in cumulative):
        counts[format_bucket(below, bound)] = cumulative[name] - before
        before, below = cumulative[name], below if bound == float("inf") else int(bound)
    return counts


def format_bucket(lower: int, upper: float) -> str:
    """Return a bucket in words, such as `3-4` or `over 4`."""
    if upper == float("inf"):
        return f"over {lower}"
    return f"{upper:.0f}" if upper == lower + 1 else f"{lower + 1}-{upper:.0f}"


def time_series_figure(
    table: pd.DataFrame, colors: Mapping[Any, str], axis_title: str, unit: str, names: Mapping[Any, str] | None = None
) -> go.Figure:
    """Draw the columns of a table over time, one line each; `names` holds names to show instead of the columns'."""
    figure = go.Figure()
    mode = "lines" if len(table) > MAX_MARKED_POINTS else "lines+markers"
    for name, color in colors.items():
        if name in table:
            figure.add_scatter(
                x=table.time,
                y=table[name],
                mode=mode,
                line_color=color,
                name=(names or {}).get(name, name),
                hovertemplate=f"%{{y:,.3~r}} {unit}",
            )
    figure.update_yaxes(title_text=axis_title, rangemode="tozero")
    figure.update_xaxes(title_text="time, UTC", hoverformat="%H:%M:%S", nticks=4)
    return apply_theme(figure, 300).update_layout(hovermode="x unified")


def version_rates_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Draw the examples per second by model version."""
    table = snapshot_deltas(snapshots, "pictures")
    names = [name for name in table.columns if name not in TIME_COLUMNS]
    rates = pd.DataFrame({"time": table.time, **{name: table[name].fillna(0) / table.seconds for name in names}})
    colors = {name: series_color(index) for index, name in enumerate(names)}
    return time_series_figure(rates, colors, "examples/s", "examples/s")


def service_facts(snapshots: Sequence[MetricsSnapshot]) -> dict[str, str]:
    """Return the state of a service in numbers: requests by outcome, rate and latency."""
    if not snapshots:
        return {"requests": "none yet"}
    last = snapshots[-1]
    counts = dict.fromkeys(OUTCOME_COLORS, 0)
    for status, count in last.requests.items():
        counts[classify_status(status)] += int(count)
    facts = {name: f"{count:,}" for name, count in counts.items()}
    if len(snapshots) > 1:
        rate = float(request_rates(snapshots[-2:]).answered.iloc[-1])
        facts["current rate"] = f"{format_significant(rate)} requests/s"
        p99 = latency_quantiles(snapshots)[0.99].dropna()
        facts["recent 99th percentile"] = f"{format_significant(float(p99.iloc[-1]), 2)} ms" if len(p99) else "-"
    return facts


def rejections_table(snapshots: Sequence[MetricsSnapshot]) -> Table | None:
    """Return the number of refused requests by reason; None if there are none."""
    counts = snapshots[-1].refused if snapshots else {}
    rows: list[list[TableCell]] = [
        [reason, int(count)] for reason, count in sorted(counts.items(), key=lambda item: -item[1]) if count
    ]
    return Table(name="refusals", columns=["reason", "requests"], rows=rows) if rows else None


def models_table(model_statuses: Sequence[ModelStatus]) -> Table:
    """Return the bundles of each model with their role and share of the answers."""
    rows: list[list[TableCell]] = [
        [model.name, role, version.version, version.engine, f"{share:.0%}", name_bundle(version)]
        for model in model_statuses
        for role, version, share in model.answering_versions()
    ]
    return Table(name="models", columns=["model", "role", "version", "engine", "share of answers", "bundle"], rows=rows)


def name_bundle(version: VersionStatus) -> str:
    """Return the name of a bundle's folder or URL, without the path of the machine or store that it lies on."""
    return version.bundle.rstrip("/").rpartition("/")[2]


def build_service_sections(
    snapshots: Sequence[MetricsSnapshot], model_statuses: Sequence[ModelStatus]
) -> list[Section]:
    """Build the sections of a service's page."""
    parts: list[SectionPart] = [FactList(name="service", facts=service_facts(snapshots))]
    parts += [models_table(model_statuses)] if model_statuses else []
    sections = [Section(title="Service", parts=parts)]
    last = snapshots[-1] if snapshots else MetricsSnapshot(time=0)
    if not any(sum(counts.values()) for counts in (last.requests, last.refused, last.pictures)):
        kind = model_statuses[0].kind if model_statuses else "image"
        return [*sections, Section(title="Requests", parts=[Note(name="no-requests", text=suggest_request(kind))])]
    sections.append(Section(title="Requests", parts=build_request_panels(snapshots)))
    if table := rejections_table(snapshots):
        sections.append(Section(title="Refusals", parts=[table]))
    return sections


def suggest_request(kind: str) -> str:
    """Return what to show of a service without requests: how to send one to a model of this kind of data."""
    return (
        f"No request for a prediction yet. Send one, such as `curl {REQUEST_OPTIONS[kind]} ADDRESS/predict` with the"
        " address of this page; it appears here within a few seconds."
    )


def build_request_panels(snapshots: Sequence[MetricsSnapshot]) -> list[Panel]:
    """Build the panels of the requests of a service that has had some."""
    rates, quantiles = request_rates(snapshots), latency_quantiles(snapshots)
    return [
        Panel(
            name="rate",
            figure=time_series_figure(rates, OUTCOME_COLORS, "requests/s", "requests/s"),
            caption="Requests by outcome.",
            reading=READING_OF_RATE,
        ),
        Panel(
            name="latency",
            figure=time_series_figure(quantiles, QUANTILE_COLORS, "latency, ms", "ms", QUANTILE_NAMES),
            caption="Latency of predictions.",
            reading=READING_OF_LATENCY,
        ),
        Panel(
            name="versions",
            figure=version_rates_figure(snapshots),
            caption="Images, rows or texts answered, by model version.",
            reading=READING_OF_VERSIONS,
        ),
        Panel(
            name="batches",
            figure=batch_sizes_figure(snapshots),
            caption="Batches by the number of examples computed at once: images, rows or texts.",
            reading=READING_OF_BATCHES,
        ),
    ]


def batch_sizes_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Draw the number of batches by size as bars."""
    counts = batch_size_counts(snapshots)
    figure = go.Figure(
        go.Bar(x=[*counts], y=[*counts.values()], marker_color=BLUE, hovertemplate="%{y:,} batches<extra></extra>")
    )
    figure.update_xaxes(title_text="examples computed at once", type="category")
    figure.update_yaxes(title_text="batches", rangemode="tozero")
    return apply_theme(figure, 300).update_layout(showlegend=False)
