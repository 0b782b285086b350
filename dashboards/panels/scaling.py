"""What more workers bring: speed-up against the ideal, and where the time of a step goes."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import Panel, Table
from dashboards.panels.tradeoff import MAX_PLOT_LINES, thin_ticks
from dashboards.plan_tables import format_cluster_shape
from dashboards.theme import BLUE, GREEN, NEUTRAL_COLOR, ORANGE, apply_theme, series_color, series_symbol, set_log_axis
from equipoise.type_aliases import JsonObject

STEP_TIME_COLORS = {"compute": BLUE, "exchange": ORANGE, "data": GREEN}


def measured_speedups(step_times: pd.DataFrame) -> pd.DataFrame:
    """Examples a second of each place and batch, and against the fewest workers at the same batch of each."""
    middle = step_times.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    return add_speedups(middle.assign(measured=True))


def predicted_speedups(plan_json: JsonObject) -> pd.DataFrame:
    """The same of what the fit predicts."""
    rows = [row for row in (plan_json["system"] or {}).get("predictions", []) if row["seconds"] is not None]
    return add_speedups(pd.DataFrame(rows, columns=["nodes", "workers", "batch", "seconds", "measured"]))


def add_speedups(table: pd.DataFrame) -> pd.DataFrame:
    """With rates and speed-ups."""
    rate = table.workers * table.batch / table.seconds.astype(float)
    ordered = table.assign(rate=rate).sort_values(["batch", "workers", "nodes"])
    first = ordered.groupby("batch")[["rate", "workers"]].transform("first")
    return ordered.assign(speedup=ordered.rate / first.rate * first.workers)


def speedup_figure(step_times: pd.DataFrame | None, plan_json: JsonObject) -> go.Figure:
    """Speed-up over workers, a line for each batch of a worker, and the ideal."""
    figure, fits = go.Figure(), predicted_speedups(plan_json)
    known = measured_speedups(step_times) if step_times is not None else fits[fits.measured]
    most = max([1, *fits.workers, *known.workers])
    figure.add_scatter(
        x=[1, most], y=[1, most], mode="lines", line={"color": NEUTRAL_COLOR, "dash": "dash"}, name="ideal"
    )
    for at, batch in enumerate(batches_to_draw(sorted({*fits.batch, *known.batch}), plan_json["plan"])):
        shade, name = series_color(at), f"{batch:,} a worker"
        here = fits[fits.batch == batch].drop_duplicates("workers")  # on the fewest nodes
        figure.add_scatter(
            x=here.workers,
            y=here.speedup,
            mode="lines+markers",
            line={"color": shade, "dash": "dot"},
            marker_symbol=series_symbol(at, measured=False),
            name=name,
            legendgroup=name,
            hovertemplate="%{y:.3g} predicted",
        )
        here = known[known.batch == batch]
        marker = {"color": shade, "symbol": series_symbol(at), "size": 9}
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
    ticks = thin_ticks(sorted({*fits.workers, *known.workers}))
    figure.update_xaxes(title_text="workers", type="log", tickvals=ticks, ticktext=[str(one) for one in ticks])
    set_log_axis(figure, "y", [1, most, *known.speedup], "speed-up")
    return apply_theme(figure, 460)


def batches_to_draw(batches: list[int], plan: JsonObject | None) -> list[int]:
    """Those that get a line: the plan's, and others from the smallest to the largest."""
    if len(batches) <= MAX_PLOT_LINES:
        return batches
    places = np.linspace(0, len(batches) - 1, MAX_PLOT_LINES - 1).round().astype(int)
    return sorted({*(batches[place] for place in places), *([plan["batch"]] if plan else [])} & {*batches})


def step_time_breakdown(step_times: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of a step by what they are spent on; `seconds` are all of it."""
    parts = [name for name in ("data_seconds", "exchange_seconds") if name in step_times]
    wanted = ["nodes", "workers", "batch"]
    table = step_times.assign(**{name: pd.to_numeric(step_times[name], errors="coerce").fillna(0.0) for name in parts})
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


def step_time_breakdown_figure(step_times: pd.DataFrame) -> go.Figure:
    """Stacked bars over the batch, a panel for each place."""
    table = step_time_breakdown(step_times)
    places = list(table[["nodes", "workers"]].drop_duplicates().itertuples(index=False, name=None))
    titles = [format_cluster_shape(int(nodes), int(workers)) for nodes, workers in places]
    figure = make_subplots(rows=len(places), shared_xaxes=True, vertical_spacing=0.25 / max(len(places), 2),
                           subplot_titles=titles)  # fmt: skip
    for row, (nodes, workers) in enumerate(places, 1):
        here = table[(table.nodes == nodes) & (table.workers == workers)]
        for name, shade in STEP_TIME_COLORS.items():
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
    return apply_theme(figure, 120 + 200 * len(places)).update_layout(barmode="stack")


def describe_bottleneck(plan_json: JsonObject) -> list[str]:
    """What keeps the plan from being faster, in words."""
    chosen = plan_json["plan"]
    if not chosen:
        return []
    words = {
        "compute": "computing takes the longest part of its step: faster workers help, or more if the exchange lets",
        "exchange": "the exchange of gradients takes the longest part of its step: a faster network would help",
        "noise": "its batch is past the critical one: more workers at the same batch of each teach little more",
        "data": "its workers wait for data: a faster store or more loading threads would help",
    }
    where = format_cluster_shape(chosen["nodes"], chosen["workers"])
    return [f"The plan ({where} x {chosen['batch']}) is bound by {chosen['binding']}: {words[chosen['binding']]}."]


def build_scaling_panels(plan_json: JsonObject, step_times: pd.DataFrame | None) -> list[Panel]:
    """All that can be drawn of what is there."""
    found = []
    if plan_json["system"] or step_times is not None:
        says = (
            "How many times as fast workers are together as the fewest are, at the same batch of each; filled marks"
            " were measured, dotted lines and hollow marks predicted."
        )
        found.append(
            Panel(
                name="speedup",
                figure=speedup_figure(step_times, plan_json),
                caption=says,
                data_table=speedup_table(step_times, plan_json),
            )
        )
    if step_times is not None and {"data_seconds", "exchange_seconds"} & {*step_times}:
        says = "Where the time of a step goes: computing, what the exchange adds to it, and waiting for data."
        found.append(Panel(name="parts", figure=step_time_breakdown_figure(step_times), caption=says))
    return found


def speedup_table(step_times: pd.DataFrame | None, plan_json: JsonObject) -> Table:
    """Rates and speed-ups, measured and predicted."""
    tables = [predicted_speedups(plan_json).assign(which="predicted")]
    tables += [measured_speedups(step_times).assign(which="measured")] if step_times is not None else []
    columns = ["which", "nodes", "workers", "batch", "rate", "speedup"]
    found = [list(row) for table in tables for row in table[columns].itertuples(index=False, name=None)]
    return Table(name="speedups", columns=[*columns[:4], "examples/s", "speed-up"], rows=found)
