"""Panels of the trade-off: time per example, examples to the target, and their product, by global batch.

They are drawn from plan.json and the two tables that it was made from; either table may be missing.
"""

from collections.abc import Iterable

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import Panel, Table
from dashboards.panels.pareto_front import build_deadline_slider, pareto_figure, time_heatmap_figure
from dashboards.plan_tables import (
    candidate_plans,
    format_cluster_shape,
    group_by_cluster_shape,
    lr_ratios,
    mark_best_lr,
    measured_step_times,
    predicted_examples,
    predicted_step_times,
)
from dashboards.theme import (
    AMBER,
    BLUE,
    NEUTRAL_COLOR,
    apply_theme,
    series_color,
    series_symbol,
    set_log_axis,
    translucent_color,
)
from equipoise.formatting import pluralize
from equipoise.planning.document import PlanDocument, PlanEntry

ROW_TITLES = ("time per example", "examples to the target", "time to the target")
MIN_TICK_RATIO = 1.3  # between the batches of two ticks, whose labels would overlap otherwise
MAX_PLOT_LINES = 6  # one per colour of the palette


def tradeoff_figure(document: PlanDocument, step_times: pd.DataFrame | None, trials: pd.DataFrame | None) -> go.Figure:
    """Draw time per example, examples to the target, and time to the target, one above the other by global batch."""
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=ROW_TITLES)
    predicted, plans = predicted_step_times(document), candidate_plans(document)
    measured = group_by_cluster_shape(measured_step_times(step_times)) if step_times is not None else {}
    shapes, fits, times = (
        shapes_to_draw(document) or [*measured][:MAX_PLOT_LINES],
        group_by_cluster_shape(predicted),
        group_by_cluster_shape(plans),
    )
    for index, shape in enumerate(shapes):
        name = format_cluster_shape(*shape)
        if shape in fits:
            add_interval(figure, 1, fits[shape], "seconds", index, name, 1000)
        if shape in measured:
            add_measurements(figure, measured[shape], index, name, shape not in fits)
        if shape in times:
            add_time_to_target(figure, times[shape], index, name)
    if trials is not None:
        add_trials(figure, mark_best_lr(trials))
    if document.statistical:
        add_interval(figure, 2, predicted_examples(document), "examples", len(shapes), "fit", 1)
    if document.plan:
        add_plan(figure, document.plan)
    units = ("ms per example", "examples", "seconds")
    seconds = [*predicted.seconds, *(value for table in measured.values() for value in table.seconds)]
    examples = [*predicted_examples(document).examples, *(trials.examples if trials is not None else ())]
    columns: tuple[Iterable[float], ...] = ([1000 * value for value in seconds], examples, plans.seconds)
    for row, (unit, values) in enumerate(zip(units, columns, strict=True), 1):
        set_log_axis(figure, "y", values, unit, row=row, col=1)
    figure.update_xaxes(type="log", showspikes=True, spikemode="across", spikethickness=1)
    tables = [
        predicted,
        predicted_examples(document),
        plans,
        *measured.values(),
        *([trials] if trials is not None else []),
    ]
    batches = sorted({batch for table in tables for batch in table.global_batch})
    figure.update_xaxes(tickvals=thin_ticks(batches), ticktext=[f"{batch:,.0f}" for batch in thin_ticks(batches)])
    figure.update_xaxes(title_text="global batch, examples", row=3, col=1)
    return apply_theme(figure, 860).update_layout(hovermode="x", legend={"y": 1.04})


def shapes_to_draw(document: PlanDocument) -> list[tuple[int, int]]:
    """Return up to `MAX_PLOT_LINES` cluster shapes to draw: that of the plan, of the front, then the smallest."""
    chosen = [(setting.nodes, setting.workers) for setting in (document.plan, *document.front) if setting]
    shapes = [
        *group_by_cluster_shape(predicted_step_times(document)),
        *group_by_cluster_shape(candidate_plans(document)),
    ]
    return sorted([*dict.fromkeys([*chosen, *sorted(shapes)])][:MAX_PLOT_LINES])


def thin_ticks(batches: list[int]) -> list[int]:
    """Return the values, in ascending order, whose tick labels do not overlap on a logarithmic axis."""
    ticks: list[int] = []
    for batch in batches:
        if not ticks or batch >= MIN_TICK_RATIO * ticks[-1]:
            ticks.append(batch)
    return ticks


def add_interval(
    figure: go.Figure, row: int, table: pd.DataFrame, column: str, color_index: int, label: str, scale: float
) -> None:
    """Add a predicted line with the band of its interval."""
    color = series_color(color_index)
    bounded = table.dropna(subset=["low", "high"])
    figure.add_scatter(
        x=[*bounded.global_batch, *bounded.global_batch[::-1]],
        y=[*bounded.high * scale, *bounded.low[::-1] * scale],
        mode="lines",
        fill="toself",
        fillcolor=translucent_color(color),
        line_width=0,
        hoverinfo="skip",
        showlegend=False,
        name=f"{label}, interval",
        row=row,
        col=1,
    )
    figure.add_scatter(
        x=table.global_batch,
        y=table[column] * scale,
        mode="lines",
        line={"color": color, "dash": "dot"},
        name=label,
        legendgroup=label,
        hovertemplate="%{y:.3g} predicted",
        row=row,
        col=1,
    )


def add_measurements(figure: go.Figure, table: pd.DataFrame, series_index: int, label: str, show_legend: bool) -> None:
    """Add marks of measured step times, with a legend entry if no predicted line has one."""
    figure.add_scatter(
        x=table.global_batch,
        y=table.seconds * 1000,
        mode="markers",
        marker={"color": series_color(series_index), "symbol": series_symbol(series_index), "size": 8},
        name=label,
        legendgroup=label,
        showlegend=show_legend,
        hovertemplate="%{y:.3g} measured",
        row=1,
        col=1,
    )


def add_trials(figure: go.Figure, trials: pd.DataFrame) -> None:
    """Add the trials at the best learning rate of their batch; a triangle where the target was not reached."""
    best = trials[trials.best]
    kinds = (("trials", best[best.reached == 1], "circle"), ("not reached", best[best.reached == 0], "triangle-up"))
    for name, rows, symbol in kinds:
        marker = {"color": NEUTRAL_COLOR, "symbol": symbol, "size": 7}
        hover = [f"lr {lr:.3g}, seed {seed}" for lr, seed in zip(rows.lr, rows.seed, strict=True)]
        figure.add_scatter(
            x=rows.global_batch, y=rows.examples, mode="markers", marker=marker, name=name, text=hover, row=2, col=1
        )


def add_time_to_target(figure: go.Figure, table: pd.DataFrame, series_index: int, label: str) -> None:
    """Add the time to the target of one cluster shape with its interval; filled marks if both factors were measured."""
    symbols = [series_symbol(series_index, bool(measured)) for measured in table.measured]
    figure.add_scatter(
        x=table.global_batch,
        y=table.seconds,
        error_y={"array": table.high - table.seconds, "arrayminus": table.seconds - table.low, "thickness": 1},
        mode="lines+markers",
        line={"color": series_color(series_index), "width": 1},
        marker={"symbol": symbols, "size": 8},
        name=label,
        legendgroup=label,
        showlegend=False,
        row=3,
        col=1,
    )


def add_plan(figure: go.Figure, plan: PlanEntry) -> None:
    """Add the chosen plan as a star, and a vertical line at its global batch."""
    figure.add_scatter(
        x=[plan.global_batch],
        y=[plan.seconds.value],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        name="the plan",
        row=3,
        col=1,
    )
    figure.add_vline(plan.global_batch, line={"dash": "dash", "width": 1, "color": NEUTRAL_COLOR})


def lr_figure(trials: pd.DataFrame) -> go.Figure:
    """Draw the learning rates tried at each batch; a line joins the best, hollow where no rate beyond it was tried."""
    table, figure = lr_ratios(trials), go.Figure()
    is_best = table.best & (table.reached > 0)
    tried, best = table[~is_best], table[is_best]
    figure.add_scatter(
        x=tried.global_batch,
        y=tried.lr,
        mode="markers",
        marker={
            "color": NEUTRAL_COLOR,
            "size": 7,
            "symbol": ["circle" if reached > 0 else "x" for reached in tried.reached],
        },
        text=[format_lr_hover(*row) for row in zip(tried.more, tried.reached, tried.trials, strict=True)],
        name="tried",
    )
    figure.add_scatter(
        x=best.global_batch,
        y=best.lr,
        mode="lines+markers",
        line_color=BLUE,
        marker={"size": 11, "symbol": ["circle" if inside else "circle-open" for inside in best.inside]},
        text=[
            "lower and higher rates were tried" if inside else "the lowest or highest rate tried"
            for inside in best.inside
        ],
        name="best",
    )
    figure.update_xaxes(title_text="global batch, examples", type="log")
    set_log_axis(figure, "y", table.lr, "learning rate")
    batches = thin_ticks(sorted(table.global_batch.unique()))
    return apply_theme(figure.update_xaxes(tickvals=batches, ticktext=[f"{batch:,.0f}" for batch in batches]))


def format_lr_hover(examples_ratio: float, reached: float, trials: int) -> str:
    """Return the hover text of a learning rate that is not the best of its batch."""
    if not reached:
        return f"{pluralize(trials, 'trial')}, none reached the target"
    return (
        f"{examples_ratio:.2f} times the examples of the best rate"
        f" ({pluralize(trials, 'trial')}, {reached:.0%} reached the target)"
    )


def build_tradeoff_panels(
    document: PlanDocument, step_times: pd.DataFrame | None, trials: pd.DataFrame | None
) -> list[Panel]:
    """Build the panels for which there is data."""
    panels = []
    if document.system or document.statistical or step_times is not None or trials is not None:
        caption = (
            "A larger batch takes less time per example but needs more examples; the product, the time to the target,"
            " has a minimum. Filled marks were measured; dotted lines and hollow marks were predicted; bands and bars"
            " are 80 % intervals."
        )
        panels.append(
            Panel(
                name="curves",
                figure=tradeoff_figure(document, step_times, trials),
                caption=caption,
                data_table=plans_table(document),
            )
        )
    if document.front:
        caption = (
            "Each point is a plan; none is both faster and cheaper than one on the front. Hollow points were predicted."
        )
        panels.append(
            Panel(name="front", figure=pareto_figure(document), caption=caption, slider=build_deadline_slider(document))
        )
        caption = "Time to the target by workers and batch size per worker; dark blue is fast."
        panels.append(Panel(name="heat", figure=time_heatmap_figure(document), caption=caption))
    if trials is not None and (pd.to_numeric(trials.lr, errors="coerce") > 0).any():
        caption = "The best learning rate of each batch; hollow where it is the lowest or highest rate tried."
        panels.append(Panel(name="rates", figure=lr_figure(trials), caption=caption))
    return panels


def plans_table(document: PlanDocument) -> Table | None:
    """Return the table of every plan, the fastest first; None without plans."""
    plans = candidate_plans(document).sort_values("seconds")
    if plans.empty:
        return None
    columns = ["nodes", "workers", "batch", "global_batch", "lr", "seconds", "low", "high", "worker_seconds"]
    columns += ["binding", "measured"]
    rows = [[None if pd.isna(value) else value for value in row] for row in plans[columns].itertuples(index=False)]
    return Table(name="plans", columns=[column.replace("_", " ") for column in columns], rows=rows)
