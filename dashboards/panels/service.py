"""How a service does: rate, latency, batch sizes, refusals, versions; from counts that were noted now and then."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dashboards import theme as style
from dashboards.page import Facts, Panel, Part, Section, Table
from equipoise.formatting import number

Noted = Mapping[str, Any]

QUANTILES = {0.5: style.BLUE, 0.9: style.AMBER, 0.99: style.ORANGE}
FEW = 40  # points, which are marked: a line alone would not show those without neighbours
OUTCOMES = {"answered": style.BLUE, "refused": style.AMBER, "failed": style.ORANGE}


def grown(noted: Sequence[Noted], part: str) -> pd.DataFrame:
    """What was added from one note to the next, a column for each name, over the time of the later one.

    Where a count fell, the service had begun anew: then all of it is new.
    """
    rows = []
    for before, after in pairwise(noted):
        was, now = before[part], after[part]
        added = {name: value - was.get(name, 0) if value >= was.get(name, 0) else value for name, value in now.items()}
        moment = datetime.fromtimestamp(after["time"], UTC)
        rows.append({"time": moment, "seconds": after["time"] - before["time"], **added})
    return pd.DataFrame(rows, columns=list(dict.fromkeys(["time", "seconds", *(name for row in rows for name in row)])))


def outcomes(noted: Sequence[Noted]) -> pd.DataFrame:
    """Requests a second, by what came of them."""
    table = grown(noted, "requests")
    found = table[["time", "seconds"]].copy()
    for name in OUTCOMES:
        columns = [one for one in table.columns if one not in ("time", "seconds") and outcome(one) == name]
        found[name] = table[columns].fillna(0).sum(axis=1) / table.seconds
    return found


def outcome(status: str) -> str:
    """What a status means; a 503 is a refusal and no failure."""
    if status.startswith("4") or status == "503":
        return "refused"
    return "failed" if status.startswith("5") else "answered"


def quantiles(noted: Sequence[Noted]) -> pd.DataFrame:
    """Milliseconds of predictions, by quantile: within the buckets that were counted."""
    table = grown(noted, "seconds")
    bounds = sorted((float(name), name) for name in table.columns if name not in ("time", "seconds"))
    rows = []
    for _, row in table.iterrows():
        counts = [(bound, float(row[name])) for bound, name in bounds]
        found: dict[Any, Any] = {"time": row["time"], **{q: quantile(counts, q) for q in QUANTILES}}
        rows.append(found)
    return pd.DataFrame(rows, columns=["time", *QUANTILES])


def quantile(counts: Sequence[tuple[float, float]], q: float) -> float | None:
    """In milliseconds, of cumulative counts up to each bound; in the last bucket, its lower bound."""
    total = counts[-1][1] if counts else 0.0
    if not total > 0:
        return None
    below, before = 0.0, 0.0
    for bound, count in counts:
        if count >= q * total:
            if bound == float("inf"):
                return below * 1000
            return (below + (bound - below) * (q * total - before) / max(count - before, 1e-12)) * 1000
        below, before = bound, count
    return below * 1000


def sizes(noted: Sequence[Noted]) -> dict[str, float]:
    """Batches by how many pictures were computed at once, since the service began."""
    held = noted[-1]["batches"] if noted else {}
    found, before, below = {}, 0.0, 0
    for bound, name in sorted((float(name), name) for name in held):
        found[between(below, bound)] = held[name] - before
        before, below = held[name], below if bound == float("inf") else int(bound)
    return found


def between(below: int, bound: float) -> str:
    """A bucket in words."""
    if bound == float("inf"):
        return f"over {below}"
    return f"{bound:.0f}" if bound == below + 1 else f"{below + 1} to {bound:.0f}"


def lines(table: pd.DataFrame, names: Mapping[Any, str], words: str, by: str = "{}") -> go.Figure:
    """Columns over time."""
    figure = go.Figure()
    mode = "lines" if len(table) > FEW else "lines+markers"
    for name, shade in names.items():
        if name in table:
            figure.add_scatter(x=table.time, y=table[name], mode=mode, line_color=shade, name=by.format(name))
    figure.update_yaxes(title_text=words, rangemode="tozero")
    figure.update_xaxes(title_text="time, UTC")
    return style.styled(figure, 300)


def versions(noted: Sequence[Noted]) -> go.Figure:
    """Pictures a second, by version of each model."""
    table = grown(noted, "pictures")
    names = [name for name in table.columns if name not in ("time", "seconds")]
    rates = pd.DataFrame({"time": table.time, **{name: table[name].fillna(0) / table.seconds for name in names}})
    return lines(rates, {name: style.colour(at) for at, name in enumerate(names)}, "pictures/s")


def facts(noted: Sequence[Noted]) -> dict[str, str]:
    """How it stands."""
    if not noted:
        return {"requests": "none were counted yet"}
    last = noted[-1]
    counted = dict.fromkeys(OUTCOMES, 0)
    for status, count in last["requests"].items():
        counted[outcome(status)] += int(count)
    found = {name: f"{count:,}" for name, count in counted.items()}
    if len(noted) > 1:
        found["rate now"] = f"{number(float(outcomes(noted[-2:]).answered.iloc[-1]))} requests/s"
        slow = quantiles(noted)[0.99].dropna()
        found["p99 lately"] = f"{number(float(slow.iloc[-1]))} ms" if len(slow) else "-"
    return found


def refusals(noted: Sequence[Noted]) -> Table | None:
    """By reason."""
    held = noted[-1]["refused"] if noted else {}
    rows = [[reason, int(count)] for reason, count in sorted(held.items(), key=lambda one: -one[1]) if count]
    return Table(name="refusals", columns=["refused for", "requests"], rows=rows) if rows else None


def models(described: Sequence[Mapping[str, Any]]) -> Table:
    """Which bundles answer."""
    rows = []
    for one in described:
        for role in ("current", "canary", "shadow"):
            if role in one:
                share = one["share"] if role == "canary" else 1 if role == "current" else 0
                held = one[role]
                rows.append([one["name"], role, held["version"], held["engine"], f"{share:.0%}", held["bundle"]])
    return Table(name="models", columns=["model", "role", "version", "engine", "answers", "bundle"], rows=rows)


def sections(noted: Sequence[Noted], described: Sequence[Mapping[str, Any]]) -> list[Section]:
    """All there is to see."""
    parts: list[Part] = [Facts(name="service", facts=facts(noted)), models(described)]
    found = [Section(title="Service", parts=parts)]
    panels = [
        Panel(
            name="rate", figure=lines(outcomes(noted), OUTCOMES, "requests/s"), says="Requests by what came of them."
        ),
        Panel(
            name="latency",
            figure=lines(quantiles(noted), QUANTILES, "ms", "{:.0%}"),
            says="From the head of a prediction's request to its answer: half, nine of ten and 99 of 100 take less.",
        ),
        Panel(name="versions", figure=versions(noted), says="Pictures answered, by version."),
        Panel(name="batches", figure=batches(noted), says="Pictures that were computed at once, since it began."),
    ]
    found.append(Section(title="Requests", parts=panels))
    if table := refusals(noted):
        found.append(Section(title="Refusals", parts=[table]))
    return found


def batches(noted: Sequence[Noted]) -> go.Figure:
    """Bars of `sizes`."""
    held = sizes(noted)
    figure = go.Figure(go.Bar(x=[*held], y=[*held.values()], marker_color=style.BLUE, name="batches"))
    figure.update_xaxes(title_text="pictures at once", type="category")
    figure.update_yaxes(title_text="batches", rangemode="tozero")
    return style.styled(figure, 300)
