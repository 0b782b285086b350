"""The trade-off: time of an example, examples to the target, and their product, over the batch.

Of plan.json and the two tables that it was made from; either may be missing.
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
from equipoise.type_aliases import JsonObject

ROW_TITLES = ("time of an example", "examples to the target", "time to the target")
MIN_TICK_RATIO = 1.3  # a factor between two batches, below which ticks would touch
MAX_PLOT_LINES = 6  # places with a line each: more would have no colours of their own


def tradeoff_figure(plan_json: JsonObject, step_times: pd.DataFrame | None, trials: pd.DataFrame | None) -> go.Figure:
    """The three panels, one above the other, over the global batch."""
    figure = make_subplots(rows=3, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=ROW_TITLES)
    predicted, plans = predicted_step_times(plan_json), candidate_plans(plan_json)
    known = group_by_cluster_shape(measured_step_times(step_times)) if step_times is not None else {}
    places, fits, times = (
        shapes_to_draw(plan_json) or [*known][:MAX_PLOT_LINES],
        group_by_cluster_shape(predicted),
        group_by_cluster_shape(plans),
    )
    for at, one in enumerate(places):
        name = format_cluster_shape(*one)
        if one in fits:
            add_interval(figure, 1, fits[one], "seconds", at, name, 1000)
        if one in known:
            add_measurements(figure, known[one], at, name, one not in fits)
        if one in times:
            add_time_to_target(figure, times[one], at, name)
    if trials is not None:
        add_trials(figure, mark_best_lr(trials))
    if plan_json["statistical"]:
        add_interval(figure, 2, predicted_examples(plan_json), "examples", len(places), "fit", 1)
    if plan_json["plan"]:
        add_plan(figure, plan_json["plan"])
    units = ("ms of an example", "examples", "seconds")
    steps_taken = [*predicted.seconds, *(value for one in known.values() for value in one.seconds)]
    taught = [*predicted_examples(plan_json).examples, *(trials.examples if trials is not None else ())]
    columns: tuple[Iterable[float], ...] = ([1000 * value for value in steps_taken], taught, plans.seconds)
    for row, (unit, values) in enumerate(zip(units, columns, strict=True), 1):
        set_log_axis(figure, "y", values, unit, row=row, col=1)
    figure.update_xaxes(type="log", showspikes=True, spikemode="across", spikethickness=1)
    tables = [
        predicted,
        predicted_examples(plan_json),
        plans,
        *known.values(),
        *([trials] if trials is not None else []),
    ]
    batches = sorted({batch for table in tables for batch in table.global_batch})
    figure.update_xaxes(tickvals=thin_ticks(batches), ticktext=[f"{batch:,.0f}" for batch in thin_ticks(batches)])
    figure.update_xaxes(title_text="global batch, examples", row=3, col=1)
    return apply_theme(figure, 860).update_layout(hovermode="x", legend={"y": 1.04})


def shapes_to_draw(plan_json: JsonObject) -> list[tuple[int, int]]:
    """Places that get a line: all if they are few, otherwise those of the front, the plan's first, and the smallest."""
    chosen = [(one["nodes"], one["workers"]) for one in [plan_json["plan"], *plan_json["front"]] if one]
    every = [
        *group_by_cluster_shape(predicted_step_times(plan_json)),
        *group_by_cluster_shape(candidate_plans(plan_json)),
    ]
    return sorted([*dict.fromkeys([*chosen, *sorted(every)])][:MAX_PLOT_LINES])


def thin_ticks(batches: list[int]) -> list[int]:
    """Batches whose ticks do not touch."""
    found: list[int] = []
    for batch in batches:
        if not found or batch >= MIN_TICK_RATIO * found[-1]:
            found.append(batch)
    return found


def add_interval(
    figure: go.Figure, row: int, table: pd.DataFrame, column: str, color_index: int, label: str, scale: float
) -> None:
    """A line and its interval."""
    shade = series_color(color_index)
    sides = table.dropna(subset=["low", "high"])
    figure.add_scatter(
        x=[*sides.global_batch, *sides.global_batch[::-1]],
        y=[*sides.high * scale, *sides.low[::-1] * scale],
        mode="lines",
        fill="toself",
        fillcolor=translucent_color(shade),
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
        line={"color": shade, "dash": "dot"},
        name=label,
        legendgroup=label,
        hovertemplate="%{y:.3g} predicted",
        row=row,
        col=1,
    )


def add_measurements(figure: go.Figure, table: pd.DataFrame, series_index: int, label: str, show_legend: bool) -> None:
    """Steps that were timed; `alone` where no line says whose they are."""
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
    """Trials at the best rate of their batch; an arrow upwards where the target was not reached."""
    best = trials[trials.best]
    kinds = (("trials", best[best.reached == 1], "circle"), ("not reached", best[best.reached == 0], "triangle-up"))
    for words, here, symbol in kinds:
        marker = {"color": NEUTRAL_COLOR, "symbol": symbol, "size": 7}
        hover = [f"lr {lr:.3g}, seed {seed}" for lr, seed in zip(here.lr, here.seed, strict=True)]
        figure.add_scatter(
            x=here.global_batch, y=here.examples, mode="markers", marker=marker, name=words, text=hover, row=2, col=1
        )


def add_time_to_target(figure: go.Figure, table: pd.DataFrame, series_index: int, label: str) -> None:
    """Time to the target of one place, with its interval: filled marks where both factors were measured."""
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


def add_plan(figure: go.Figure, plan: JsonObject) -> None:
    """The plan."""
    figure.add_scatter(
        x=[plan["global_batch"]],
        y=[plan["seconds"]["value"]],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        name="the plan",
        row=3,
        col=1,
    )
    figure.add_vline(plan["global_batch"], line={"dash": "dash", "width": 1, "color": NEUTRAL_COLOR})


def lr_figure(trials: pd.DataFrame) -> go.Figure:
    """Learning rates that were tried at each batch; the best is joined, hollow where it is the last that was tried."""
    table, figure = lr_ratios(trials), go.Figure()
    known = table.best & (table.reached > 0)
    tried, best = table[~known], table[known]
    figure.add_scatter(
        x=tried.global_batch,
        y=tried.lr,
        mode="markers",
        marker={"color": NEUTRAL_COLOR, "size": 7, "symbol": ["circle" if one > 0 else "x" for one in tried.reached]},
        text=[format_lr_hover(*one) for one in zip(tried.more, tried.reached, tried.trials, strict=True)],
        name="tried",
    )
    figure.add_scatter(
        x=best.global_batch,
        y=best.lr,
        mode="lines+markers",
        line_color=BLUE,
        marker={"size": 11, "symbol": ["circle" if one else "circle-open" for one in best.inside]},
        text=["rates on both sides were tried" if one else "the last rate that was tried" for one in best.inside],
        name="best",
    )
    figure.update_xaxes(title_text="global batch, examples", type="log")
    set_log_axis(figure, "y", table.lr, "learning rate")
    batches = thin_ticks(sorted(table.global_batch.unique()))
    return apply_theme(figure.update_xaxes(tickvals=batches, ticktext=[f"{batch:,.0f}" for batch in batches]))


def format_lr_hover(examples_ratio: float, reached: float, trials: int) -> str:
    """A rate that is not the best."""
    if not reached:
        return f"{trials} trial{'s' * (trials > 1)}, none reached the target"
    return f"{examples_ratio:.2f} of the best's examples ({trials} trial{'s' * (trials > 1)}, {reached:.0%} reached)"


def build_tradeoff_panels(
    plan_json: JsonObject, step_times: pd.DataFrame | None, trials: pd.DataFrame | None
) -> list[Panel]:
    """All that can be drawn of what is there."""
    found = []
    if plan_json["system"] or plan_json["statistical"] or step_times is not None or trials is not None:
        says = (
            "A larger batch takes less time an example and needs more examples; their product, the time to the target,"
            " has a lowest point. Filled marks were measured, dotted lines and hollow marks predicted; bands and bars"
            " hold four of five."
        )
        found.append(
            Panel(
                name="curves",
                figure=tradeoff_figure(plan_json, step_times, trials),
                caption=says,
                data_table=plans_table(plan_json),
            )
        )
    if plan_json["front"]:
        says = "Each point is a plan; no other is faster and cheaper than one of the front. Hollow ones are predicted."
        found.append(
            Panel(name="front", figure=pareto_figure(plan_json), caption=says, slider=build_deadline_slider(plan_json))
        )
        says = "Seconds to the target for workers and the batch of each; dark blue is fast."
        found.append(Panel(name="heat", figure=time_heatmap_figure(plan_json), caption=says))
    if trials is not None and (pd.to_numeric(trials.lr, errors="coerce") > 0).any():
        says = "The best learning rate of each batch; hollow where it is the last that was tried on its side."
        found.append(Panel(name="rates", figure=lr_figure(trials), caption=says))
    return found


def plans_table(plan_json: JsonObject) -> Table | None:
    """Every plan, the fastest first."""
    plans = candidate_plans(plan_json).sort_values("seconds")
    if plans.empty:
        return None
    columns = ["nodes", "workers", "batch", "global_batch", "lr", "seconds", "low", "high", "worker_seconds", "binding"]
    rows = [[None if pd.isna(value) else value for value in row] for row in plans[columns].itertuples(index=False)]
    return Table(name="plans", columns=[column.replace("_", " ") for column in columns], rows=rows)
