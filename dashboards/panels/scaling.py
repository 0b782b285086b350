"""What more workers bring: speed-up against the ideal, and where the time of a step goes."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import theme as style
from dashboards.page import Panel, Table
from dashboards.panels.tradeoff import MOST, apart
from dashboards.plan_tables import place

Facts = dict[str, Any]

PARTS = {"compute": style.BLUE, "exchange": style.ORANGE, "data": style.GREEN}


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Examples a second of each place and batch, and against the fewest workers at the same batch of each."""
    middle = rows.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    return against(middle.assign(measured=True))


def predicted(facts: Facts) -> pd.DataFrame:
    """The same of what the fit predicts."""
    rows = [row for row in (facts["system"] or {}).get("predictions", []) if row["seconds"] is not None]
    return against(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "measured"]))


def against(table: pd.DataFrame) -> pd.DataFrame:
    """With rates and speed-ups."""
    rate = table.workers * table.batch / table.seconds.astype(float)
    ordered = table.assign(rate=rate).sort_values(["batch", "workers", "nodes"])
    first = ordered.groupby("batch")[["rate", "workers"]].transform("first")
    return ordered.assign(speedup=ordered.rate / first.rate * first.workers)


def speedups(rows: pd.DataFrame | None, facts: Facts) -> go.Figure:
    """Speed-up over workers, a line for each batch of a worker, and the ideal."""
    figure, fits = go.Figure(), predicted(facts)
    known = measured(rows) if rows is not None else fits[fits.measured]
    most = max([1, *fits.workers, *known.workers])
    figure.add_scatter(x=[1, most], y=[1, most], mode="lines", line={"color": style.GREY, "dash": "dash"}, name="ideal")
    for at, batch in enumerate(shown(sorted({*fits.batch, *known.batch}), facts["plan"])):
        shade, name = style.colour(at), f"{batch:,} a worker"
        here = fits[fits.batch == batch].drop_duplicates("workers")  # on the fewest nodes
        figure.add_scatter(
            x=here.workers,
            y=here.speedup,
            mode="lines+markers",
            line={"color": shade, "dash": "dot"},
            marker_symbol=style.symbol(at, measured=False),
            name=name,
            legendgroup=name,
            hovertemplate="%{y:.3g} predicted",
        )
        here = known[known.batch == batch]
        marker = {"color": shade, "symbol": style.symbol(at), "size": 9}
        figure.add_scatter(
            x=here.workers,
            y=here.speedup,
            mode="markers",
            marker=marker,
            name=name,
            legendgroup=name,
            showlegend=False,
            hovertemplate="%{y:.3g} measured",
        )
    ticks = apart(sorted({*fits.workers, *known.workers}))
    figure.update_xaxes(title_text="workers", type="log", tickvals=ticks, ticktext=[str(one) for one in ticks])
    style.logarithmic(figure, "y", [1, most, *known.speedup], "speed-up")
    return style.styled(figure, 460)


def shown(batches: list[int], chosen: Facts | None) -> list[int]:
    """Those that get a line: the plan's, and others from the smallest to the largest."""
    if len(batches) <= MOST:
        return batches
    places = np.linspace(0, len(batches) - 1, MOST - 1).round().astype(int)
    return sorted({*(batches[place] for place in places), *([chosen["batch"]] if chosen else [])} & {*batches})


def split(rows: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of a step by what they are spent on; `seconds` are all of it."""
    parts = [name for name in ("data_seconds", "exchange_seconds") if name in rows]
    wanted = ["nodes", "workers", "batch"]
    table = rows.assign(**{name: pd.to_numeric(rows[name], errors="coerce").fillna(0.0) for name in parts})
    middle = table.groupby(wanted, as_index=False)[["seconds", *parts]].median()
    for name in ("data_seconds", "exchange_seconds"):
        if name not in middle:
            middle[name] = 0.0
    known = middle.data_seconds + middle.exchange_seconds
    return middle.assign(
        compute=(middle.seconds - known).clip(lower=0) * 1000,
        exchange=middle.exchange_seconds * 1000,
        data=middle.data_seconds * 1000,
    )


def parts(rows: pd.DataFrame) -> go.Figure:
    """Stacked bars over the batch, a panel for each place."""
    table = split(rows)
    places = list(table[["nodes", "workers"]].drop_duplicates().itertuples(index=False, name=None))
    titles = [place(int(nodes), int(workers)) for nodes, workers in places]
    figure = make_subplots(rows=len(places), shared_xaxes=True, vertical_spacing=0.25 / max(len(places), 2),
                           subplot_titles=titles)  # fmt: skip
    for row, (nodes, workers) in enumerate(places, 1):
        here = table[(table.nodes == nodes) & (table.workers == workers)]
        for name, shade in PARTS.items():
            figure.add_bar(
                x=[f"{batch:,.0f}" for batch in here.batch],
                y=here[name],
                marker_color=shade,
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                row=row,
                col=1,
            )
        figure.update_yaxes(title_text="ms a step", row=row, col=1)
    figure.update_xaxes(title_text="batch of a worker, examples", row=len(places), col=1)
    batches = [f"{batch:,.0f}" for batch in sorted(table.batch.unique())]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=batches)
    return style.styled(figure, 120 + 200 * len(places)).update_layout(barmode="stack")


def binds(facts: Facts) -> list[str]:
    """What keeps the plan from being faster, in words."""
    chosen = facts["plan"]
    if not chosen:
        return []
    words = {
        "compute": "computing takes the longest part of its step: faster workers help, or more if the exchange lets",
        "exchange": "the exchange of gradients takes the longest part of its step: a faster network would help",
        "noise": "its batch is past the critical one: more workers at the same batch of each teach little more",
        "data": "its workers wait for data: a faster store or more loading threads would help",
    }
    where = place(chosen["nodes"], chosen["workers"])
    return [f"The plan ({where} x {chosen['batch']}) is bound by {chosen['binding']}: {words[chosen['binding']]}."]


def panels(facts: Facts, rows: pd.DataFrame | None) -> list[Panel]:
    """All that can be drawn of what is there."""
    found = []
    if facts["system"] or rows is not None:
        says = (
            "How many times as fast workers are together as the fewest are, at the same batch of each; filled marks"
            " were measured, dotted lines and hollow marks predicted."
        )
        found.append(Panel(name="speedup", figure=speedups(rows, facts), says=says, numbers=numbers(rows, facts)))
    if rows is not None and {"data_seconds", "exchange_seconds"} & {*rows}:
        says = "Where the time of a step goes: computing, what the exchange adds to it, and waiting for data."
        found.append(Panel(name="parts", figure=parts(rows), says=says))
    return found


def numbers(rows: pd.DataFrame | None, facts: Facts) -> Table:
    """Rates and speed-ups, measured and predicted."""
    tables = [predicted(facts).assign(which="predicted")]
    tables += [measured(rows).assign(which="measured")] if rows is not None else []
    columns = ["which", "nodes", "workers", "batch", "rate", "speedup"]
    found = [list(row) for table in tables for row in table[columns].itertuples(index=False, name=None)]
    return Table(name="speedups", columns=[*columns[:4], "examples/s", "speed-up"], rows=found)
