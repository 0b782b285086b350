"""Panels of a service: rate, latency, batch sizes, refusals and versions, from snapshots of its metrics."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards.metrics_snapshot import MetricName, MetricsSnapshot
from dashboards.model_status import ModelStatus
from dashboards.page import FactList, Panel, Section, SectionPart, Table, TableCell
from dashboards.theme import AMBER, BLUE, ORANGE, apply_theme, series_color
from equipoise.formatting import format_number

QUANTILE_COLORS = {0.5: BLUE, 0.9: AMBER, 0.99: ORANGE}
MAX_MARKED_POINTS = 40  # up to so many points get markers: a line alone would not show isolated points
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
    """Return a bucket in words, such as `3 to 4` or `over 4`."""
    if upper == float("inf"):
        return f"over {lower}"
    return f"{upper:.0f}" if upper == lower + 1 else f"{lower + 1} to {upper:.0f}"


def time_series_figure(
    table: pd.DataFrame, colors: Mapping[Any, str], axis_title: str, label_format: str = "{}"
) -> go.Figure:
    """Draw the columns of a table over time, one line each."""
    figure = go.Figure()
    mode = "lines" if len(table) > MAX_MARKED_POINTS else "lines+markers"
    for name, color in colors.items():
        if name in table:
            figure.add_scatter(x=table.time, y=table[name], mode=mode, line_color=color, name=label_format.format(name))
    figure.update_yaxes(title_text=axis_title, rangemode="tozero")
    figure.update_xaxes(title_text="time, UTC")
    return apply_theme(figure, 300)


def version_rates_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Draw the images per second by model version."""
    table = snapshot_deltas(snapshots, "pictures")
    names = [name for name in table.columns if name not in TIME_COLUMNS]
    rates = pd.DataFrame({"time": table.time, **{name: table[name].fillna(0) / table.seconds for name in names}})
    return time_series_figure(rates, {name: series_color(index) for index, name in enumerate(names)}, "images/s")


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
        facts["current rate"] = f"{format_number(float(request_rates(snapshots[-2:]).answered.iloc[-1]))} requests/s"
        p99 = latency_quantiles(snapshots)[0.99].dropna()
        facts["recent p99 latency"] = f"{format_number(float(p99.iloc[-1]))} ms" if len(p99) else "-"
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
        [model.name, role, version.version, version.engine, f"{share:.0%}", version.bundle]
        for model in model_statuses
        for role, version, share in model.answering_versions()
    ]
    return Table(name="models", columns=["model", "role", "version", "engine", "share of answers", "bundle"], rows=rows)


def build_service_sections(
    snapshots: Sequence[MetricsSnapshot], model_statuses: Sequence[ModelStatus]
) -> list[Section]:
    """Build the sections of a service's page."""
    parts: list[SectionPart] = [FactList(name="service", facts=service_facts(snapshots)), models_table(model_statuses)]
    sections = [Section(title="Service", parts=parts)]
    panels = [
        Panel(
            name="rate",
            figure=time_series_figure(request_rates(snapshots), OUTCOME_COLORS, "requests/s"),
            caption="Requests by outcome.",
        ),
        Panel(
            name="latency",
            figure=time_series_figure(latency_quantiles(snapshots), QUANTILE_COLORS, "ms", "{:.0%}"),
            caption="Latency of predictions, from the request's headers to its answer: 50th, 90th and 99th percentile.",
        ),
        Panel(name="versions", figure=version_rates_figure(snapshots), caption="Images answered, by model version."),
        Panel(
            name="batches",
            figure=batch_sizes_figure(snapshots),
            caption="Batches by the number of images computed at once, since the service started.",
        ),
    ]
    sections.append(Section(title="Requests", parts=panels))
    if table := rejections_table(snapshots):
        sections.append(Section(title="Refusals", parts=[table]))
    return sections


def batch_sizes_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Draw the number of batches by size as bars."""
    counts = batch_size_counts(snapshots)
    figure = go.Figure(go.Bar(x=[*counts], y=[*counts.values()], marker_color=BLUE, name="batches"))
    figure.update_xaxes(title_text="images computed at once", type="category")
    figure.update_yaxes(title_text="batches", rangemode="tozero")
    return apply_theme(figure, 300)
