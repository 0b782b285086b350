"""Panels of scaling: speed-up over workers against the ideal, and the parts of a step's time."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import Panel, Table
from dashboards.panels.tick_labels import label_batches
from dashboards.panels.tradeoff import MAX_PLOT_LINES
from dashboards.plan_tables import format_cluster_shape, predicted_step_seconds
from dashboards.theme import (
    NEUTRAL_COLOR,
    STEP_PART_COLORS,
    apply_theme,
    series_color,
    series_symbol,
    set_log_axis,
)
from equipoise.planning.bottleneck.bottleneck_text import BOTTLENECK_TEXT
from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.spacing import evenly_spaced_indices

READING_OF_SPEEDUP = (
    "Speed-up is examples per second over those of the fewest workers at the same batch size per worker. On the dashed"
    " line twice the workers would be twice as fast; below 1, more workers are slower than one. Filled marks were"
    " measured; dotted lines and hollow marks were predicted by the fit of the step time."
)
READING_OF_STEP_PARTS = (
    "Each bar is the median step of one setting. Computing is the forward and backward pass and the optimizer; exchange"
    " is what sending gradients adds beyond the computing it overlaps with; data is waiting for the next batch."
)


def measured_speedups(step_times: pd.DataFrame) -> pd.DataFrame:
    """Return measured examples per second and speed-up over the fewest workers at the same batch size per worker."""
    medians = step_times.groupby(["nodes", "workers", "batch"], as_index=False)["seconds"].median()
    return add_speedups(medians.assign(measured=True))


def predicted_speedups(document: PlanDocument) -> pd.DataFrame:
    """Return predicted examples per second and speed-up over the fewest workers at the same batch size per worker."""
    return add_speedups(predicted_step_seconds(document)[["nodes", "workers", "batch", "seconds", "measured"]])


def add_speedups(table: pd.DataFrame) -> pd.DataFrame:
    """Add the columns `rate` (examples per second) and `speedup` to step times."""
    rate = table.workers * table.batch / table.seconds.astype(float)
    ordered = table.assign(rate=rate).sort_values(["batch", "workers", "nodes"])
    first = ordered.groupby("batch")[["rate", "workers"]].transform("first")
    return ordered.assign(speedup=ordered.rate / first.rate * first.workers)


def speedup_figure(step_times: pd.DataFrame | None, document: PlanDocument) -> go.Figure:
    """Draw the speed-up over workers, a line for each batch size per worker, and the ideal."""
    figure, predicted = go.Figure(), predicted_speedups(document)
    measured = measured_speedups(step_times) if step_times is not None else predicted[predicted.measured.astype(bool)]
    max_workers = max([1, *predicted.workers, *measured.workers])
    figure.add_scatter(
        x=[1, max_workers],
        y=[1, max_workers],
        mode="lines",
        line={"color": NEUTRAL_COLOR, "dash": "dash"},
        name="ideal",
    )
    for index, batch in enumerate(batches_to_draw(sorted({*predicted.batch, *measured.batch}), document.plan)):
        color, name = series_color(index), f"{batch:,} per worker"
        line = predicted[predicted.batch == batch].drop_duplicates("workers")  # on the fewest nodes
        figure.add_scatter(
            x=line.workers,
            y=line.speedup,
            mode="lines+markers",
            line={"color": color, "dash": "dot"},
            marker_symbol=series_symbol(index, measured=False),
            name=name,
            legendgroup=name,
            hovertemplate="%{y:,.3~r} predicted",
        )
        points = measured[measured.batch == batch]
        marker = {"color": color, "symbol": series_symbol(index), "size": 9}
        figure.add_scatter(
            x=points.workers,
            y=points.speedup,
            mode="markers",
            marker=marker,
            name=name,
            legendgroup=name,
            showlegend=line.empty,  # otherwise the line of the plan names the color
            hovertemplate="%{y:,.3~r} measured",
        )
    label_batches(figure, {*predicted.workers, *measured.workers}, "workers")
    set_log_axis(figure, "y", [1, max_workers, *measured.speedup], "speed-up")
    return apply_theme(figure, 460)


def batches_to_draw(batches: list[int], plan: PlanEntry | None) -> list[int]:
    """Return the batch sizes that get a line: that of the plan, and others from the smallest to the largest."""
    if len(batches) <= MAX_PLOT_LINES:
        return batches
    indices = evenly_spaced_indices(len(batches), MAX_PLOT_LINES - 1)
    return sorted({*(batches[index] for index in indices), *([plan.batch] if plan else [])} & {*batches})


def step_time_breakdown(step_times: pd.DataFrame) -> pd.DataFrame:
    """Return the milliseconds of a step spent on computing, exchange and data, beside its total in `seconds`."""
    parts = [name for name in ("data_seconds", "exchange_seconds") if name in step_times]
    table = step_times.assign(**{name: pd.to_numeric(step_times[name], errors="coerce").fillna(0.0) for name in parts})
    medians = table.groupby(["nodes", "workers", "batch"], as_index=False)[["seconds", *parts]].median()
    for name in ("data_seconds", "exchange_seconds"):
        if name not in medians:
            medians[name] = 0.0
    other_seconds = medians.data_seconds + medians.exchange_seconds
    return medians.assign(
        compute=(medians.seconds - other_seconds).clip(lower=0) * 1000,
        exchange=medians.exchange_seconds * 1000,
        data=medians.data_seconds * 1000,
    )


def step_time_breakdown_figure(step_times: pd.DataFrame) -> go.Figure:
    """Draw the parts of a step's time as stacked bars by batch size, a panel for each cluster shape."""
    table = step_time_breakdown(step_times)
    shapes = list(table[["nodes", "workers"]].drop_duplicates().itertuples(index=False, name=None))
    figure = make_subplots(rows=len(shapes), shared_xaxes=True, vertical_spacing=0.15 / max(len(shapes), 2))
    for row, (nodes, workers) in enumerate(shapes, 1):
        bars = table[(table.nodes == nodes) & (table.workers == workers)]
        for name, color in STEP_PART_COLORS.items():
            figure.add_bar(
                x=[f"{batch:,.0f}" for batch in bars.batch],
                y=bars[name],
                marker_color=color,
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                hovertemplate="%{y:,.3~r} ms",
                row=row,
                col=1,
            )
        title = f"{format_cluster_shape(int(nodes), int(workers))}<br>ms per step"
        figure.update_yaxes(title_text=title, row=row, col=1)
    figure.update_xaxes(title_text="batch size per worker, examples", row=len(shapes), col=1)
    batches = [f"{batch:,.0f}" for batch in sorted(table.batch.unique())]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=batches)
    return apply_theme(figure, 120 + 200 * len(shapes)).update_layout(barmode="stack")


def describe_bottleneck(document: PlanDocument) -> list[str]:
    """Return what keeps the plan from being faster, in words; an empty list without a plan."""
    plan = document.plan
    if not plan:
        return []
    explanations = {
        "compute": "computing takes the largest part of a step: faster workers help, or more if the exchange permits",
        "exchange": "the gradient exchange takes the largest part of a step: a faster network would help",
        "noise": "its global batch is above the critical batch: more workers at this batch size would gain little",
        "data loading": "steps wait for batches: more readers, smaller files or cheaper augmentation would help",
    }
    where = format_cluster_shape(plan.nodes, plan.workers)
    if plan.binding == "unknown":
        return [f"What limits the plan ({where} x {plan.batch}) is not known: {BOTTLENECK_TEXT['unknown']}."]
    return [f"The plan ({where} x {plan.batch}) is bound by {plan.binding}: {explanations[plan.binding]}."]


def build_scaling_panels(document: PlanDocument, step_times: pd.DataFrame | None) -> list[Panel]:
    """Build the panels for which there is data."""
    panels = []
    if document.system or step_times is not None:
        caption = "How many times as fast as the fewest workers, at the same batch size per worker."
        panels.append(
            Panel(
                name="speedup",
                figure=speedup_figure(step_times, document),
                caption=caption,
                reading=READING_OF_SPEEDUP,
                data_table=speedup_table(step_times, document),
            )
        )
    if step_times is not None and {"data_seconds", "exchange_seconds"} & {*step_times}:
        caption = "Time of a step by part: computing, what the gradient exchange adds to it, and waiting for data."
        figure = step_time_breakdown_figure(step_times)
        panels.append(Panel(name="parts", figure=figure, caption=caption, reading=READING_OF_STEP_PARTS))
    return panels


def speedup_table(step_times: pd.DataFrame | None, document: PlanDocument) -> Table:
    """Return the table of examples per second and speed-ups, predicted and measured."""
    tables = [predicted_speedups(document).assign(which="predicted")]
    tables += [measured_speedups(step_times).assign(which="measured")] if step_times is not None else []
    columns = ["which", "nodes", "workers", "batch", "rate", "speedup"]
    rows = [list(row) for table in tables for row in table[columns].itertuples(index=False, name=None)]
    return Table(name="speedups", columns=[*columns[:4], "examples/s", "speed-up"], rows=rows)
