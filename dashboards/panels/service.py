"""How a service does: rate, latency, batch sizes, refusals, versions; from counts that were noted now and then."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards.page import FactList, Panel, Section, SectionPart, Table
from dashboards.theme import AMBER, BLUE, ORANGE, apply_theme, series_color
from equipoise.formatting import format_number

MetricsSnapshot = Mapping[str, Any]

QUANTILE_COLORS = {0.5: BLUE, 0.9: AMBER, 0.99: ORANGE}
MAX_MARKED_POINTS = 40  # points, which are marked: a line alone would not show those without neighbours
OUTCOME_COLORS = {"answered": BLUE, "refused": AMBER, "failed": ORANGE}


def snapshot_deltas(snapshots: Sequence[MetricsSnapshot], metric: str) -> pd.DataFrame:
    """What was added from one note to the next, a column for each name, over the time of the later one.

    Where a count fell, the service had begun anew: then all of it is new.
    """
    rows = []
    for before, after in pairwise(snapshots):
        was, now = before[metric], after[metric]
        added = {name: value - was.get(name, 0) if value >= was.get(name, 0) else value for name, value in now.items()}
        moment = datetime.fromtimestamp(after["time"], UTC)
        rows.append({"time": moment, "seconds": after["time"] - before["time"], **added})
    return pd.DataFrame(rows, columns=list(dict.fromkeys(["time", "seconds", *(name for row in rows for name in row)])))


def request_rates(snapshots: Sequence[MetricsSnapshot]) -> pd.DataFrame:
    """Requests a second, by what came of them."""
    table = snapshot_deltas(snapshots, "requests")
    found = table[["time", "seconds"]].copy()
    for name in OUTCOME_COLORS:
        columns = [one for one in table.columns if one not in ("time", "seconds") and classify_status(one) == name]
        found[name] = table[columns].fillna(0).sum(axis=1) / table.seconds
    return found


def classify_status(status: str) -> str:
    """What a status means; a 503 is a refusal and no failure."""
    if status.startswith("4") or status == "503":
        return "refused"
    return "failed" if status.startswith("5") else "answered"


def latency_quantiles(snapshots: Sequence[MetricsSnapshot]) -> pd.DataFrame:
    """Milliseconds of predictions, by quantile: within the buckets that were counted."""
    table = snapshot_deltas(snapshots, "seconds")
    bounds = sorted((float(name), name) for name in table.columns if name not in ("time", "seconds"))
    rows = []
    for _, row in table.iterrows():
        counts = [(bound, float(row[name])) for bound, name in bounds]
        found: dict[Any, Any] = {"time": row["time"], **{q: bucket_quantile(counts, q) for q in QUANTILE_COLORS}}
        rows.append(found)
    return pd.DataFrame(rows, columns=["time", *QUANTILE_COLORS])


def bucket_quantile(cumulative_counts: Sequence[tuple[float, float]], q: float) -> float | None:
    """In milliseconds, of cumulative counts up to each bound; in the last bucket, its lower bound."""
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
    """Batches by how many pictures were computed at once, since the service began."""
    held = snapshots[-1]["batches"] if snapshots else {}
    found, before, below = {}, 0.0, 0
    for bound, name in sorted((float(name), name) for name in held):
        found[format_bucket(below, bound)] = held[name] - before
        before, below = held[name], below if bound == float("inf") else int(bound)
    return found


def format_bucket(lower: int, upper: float) -> str:
    """A bucket in words."""
    if upper == float("inf"):
        return f"over {lower}"
    return f"{upper:.0f}" if upper == lower + 1 else f"{lower + 1} to {upper:.0f}"


def time_series_figure(
    table: pd.DataFrame, colors: Mapping[Any, str], axis_title: str, label_format: str = "{}"
) -> go.Figure:
    """Columns over time."""
    figure = go.Figure()
    mode = "lines" if len(table) > MAX_MARKED_POINTS else "lines+markers"
    for name, shade in colors.items():
        if name in table:
            figure.add_scatter(x=table.time, y=table[name], mode=mode, line_color=shade, name=label_format.format(name))
    figure.update_yaxes(title_text=axis_title, rangemode="tozero")
    figure.update_xaxes(title_text="time, UTC")
    return apply_theme(figure, 300)


def version_rates_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Pictures a second, by version of each model."""
    table = snapshot_deltas(snapshots, "pictures")
    names = [name for name in table.columns if name not in ("time", "seconds")]
    rates = pd.DataFrame({"time": table.time, **{name: table[name].fillna(0) / table.seconds for name in names}})
    return time_series_figure(rates, {name: series_color(at) for at, name in enumerate(names)}, "pictures/s")


def service_facts(snapshots: Sequence[MetricsSnapshot]) -> dict[str, str]:
    """How it stands."""
    if not snapshots:
        return {"requests": "none were counted yet"}
    last = snapshots[-1]
    counted = dict.fromkeys(OUTCOME_COLORS, 0)
    for status, count in last["requests"].items():
        counted[classify_status(status)] += int(count)
    found = {name: f"{count:,}" for name, count in counted.items()}
    if len(snapshots) > 1:
        found["rate now"] = f"{format_number(float(request_rates(snapshots[-2:]).answered.iloc[-1]))} requests/s"
        slow = latency_quantiles(snapshots)[0.99].dropna()
        found["p99 lately"] = f"{format_number(float(slow.iloc[-1]))} ms" if len(slow) else "-"
    return found


def rejections_table(snapshots: Sequence[MetricsSnapshot]) -> Table | None:
    """By reason."""
    held = snapshots[-1]["refused"] if snapshots else {}
    rows = [[reason, int(count)] for reason, count in sorted(held.items(), key=lambda one: -one[1]) if count]
    return Table(name="refusals", columns=["refused for", "requests"], rows=rows) if rows else None


def models_table(model_statuses: Sequence[Mapping[str, Any]]) -> Table:
    """Which bundles answer."""
    rows = []
    for one in model_statuses:
        for role in ("current", "canary", "shadow"):
            if role in one:
                share = one["share"] if role == "canary" else 1 if role == "current" else 0
                held = one[role]
                rows.append([one["name"], role, held["version"], held["engine"], f"{share:.0%}", held["bundle"]])
    return Table(name="models", columns=["model", "role", "version", "engine", "answers", "bundle"], rows=rows)


def build_service_sections(
    snapshots: Sequence[MetricsSnapshot], model_statuses: Sequence[Mapping[str, Any]]
) -> list[Section]:
    """All there is to see."""
    parts: list[SectionPart] = [FactList(name="service", facts=service_facts(snapshots)), models_table(model_statuses)]
    found = [Section(title="Service", parts=parts)]
    panels = [
        Panel(
            name="rate",
            figure=time_series_figure(request_rates(snapshots), OUTCOME_COLORS, "requests/s"),
            caption="Requests by what came of them.",
        ),
        Panel(
            name="latency",
            figure=time_series_figure(latency_quantiles(snapshots), QUANTILE_COLORS, "ms", "{:.0%}"),
            caption="From the head of a prediction's request to its answer: half, nine of ten and 99 of 100 take less.",
        ),
        Panel(name="versions", figure=version_rates_figure(snapshots), caption="Pictures answered, by version."),
        Panel(
            name="batches",
            figure=batch_sizes_figure(snapshots),
            caption="Pictures that were computed at once, since it began.",
        ),
    ]
    found.append(Section(title="Requests", parts=panels))
    if table := rejections_table(snapshots):
        found.append(Section(title="Refusals", parts=[table]))
    return found


def batch_sizes_figure(snapshots: Sequence[MetricsSnapshot]) -> go.Figure:
    """Bars of `batch_size_counts`."""
    held = batch_size_counts(snapshots)
    figure = go.Figure(go.Bar(x=[*held], y=[*held.values()], marker_color=BLUE, name="batches"))
    figure.update_xaxes(title_text="pictures at once", type="category")
    figure.update_yaxes(title_text="batches", rangemode="tozero")
    return apply_theme(figure, 300)
