"""Panels that compare plans: time against cost with the Pareto front, and time by workers and batch size."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dashboards.plan_tables import candidate_plans, format_plans, has_cost_in_dollars, settings_by_device
from dashboards.theme import (
    AMBER,
    BLUE,
    GREEN,
    NEUTRAL_COLOR,
    ORANGE,
    PURPLE,
    SKY,
    apply_theme,
    choose_time_unit,
    format_significant,
    series_symbol,
    set_log_axis,
)
from equipoise.planning.document import PlanDocument
from equipoise.type_aliases import JsonObject

DEVICE_COLORS = (GREEN, PURPLE, SKY)  # which the front, its knee and the star do not have
NO_TRACE_NAME = "<extra></extra>"  # in Plotly's templates of hover texts
READING_OF_FRONT = (
    "Time runs to the right and cost upwards, so that the best plans are at the lower left. Filled marks combine a step"
    " time and examples that were both measured; hollow ones need a prediction. The diamond is the knee of the front,"
    " beyond which less time costs much more; the star is the cheapest plan within the deadline of the slider."
)
READING_OF_DEVICES = (
    " Each kind of worker has its own marks; the other panels show the kind of the plan. Without prices each kind"
    " has its own front, because their worker-seconds are different costs."
)
READING_OF_HEATMAP = (
    "Each cell is the predicted time to the target with that many workers and examples per worker, at the best learning"
    " rate of their global batch. Empty cells have no prediction: their global batch lies outside of what was measured."
)


def pareto_figure(document: PlanDocument) -> go.Figure:
    """Draw time against cost of every plan, the Pareto front with its knee, and the cheapest plan within a deadline."""
    in_dollars = has_cost_in_dollars(document)
    plans, front = (settings_by_device(settings, in_dollars) for settings in (document.options, document.front))
    figure, unit = go.Figure(), "dollars" if in_dollars else "worker-seconds"
    for index, device in enumerate(plans.device.unique().tolist()):
        own = plans[plans.device == device]
        color = DEVICE_COLORS[index % len(DEVICE_COLORS)] if device else NEUTRAL_COLOR
        marker = {"color": color, "symbol": mark_measured(own, index), "size": 7}
        add_plans(figure, own, name_trace("every plan", device), unit, mode="markers", marker=marker)
    for device, own in list_fronts(front, in_dollars):
        marker = {"symbol": mark_measured(own), "size": 9}
        style = {"mode": "lines+markers", "line_color": BLUE, "marker": marker}
        add_plans(figure, own, name_trace("the front", device), unit, **style)
    if knee := document.knee:
        figure.add_scatter(
            x=[knee.seconds.value],
            y=[knee.dollars if in_dollars else knee.worker_seconds],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 16, "color": ORANGE, "line_width": 2},
            hoverinfo="skip",
            name="knee of the front",
        )
    figure.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        hoverinfo="skip",
        name="cheapest within the deadline",
    )
    set_log_axis(figure, "x", plans.seconds, "seconds to the target")
    set_log_axis(figure, "y", plans.cost, f"cost, {unit}")
    return apply_theme(figure, 420)


def mark_limited_plan(figure: go.Figure, document: PlanDocument) -> go.Figure:
    """Put the star of a front on the plan of a document, which was chosen within limits; without one remove it."""
    plan, in_dollars = document.plan, has_cost_in_dollars(document)
    star = figure.data[-1]
    if plan is None:
        figure.data = figure.data[:-1]
        return figure
    star.update(x=[plan.seconds.value], y=[plan.dollars if in_dollars else plan.worker_seconds], name="the plan")
    return figure


def add_plans(figure: go.Figure, plans: pd.DataFrame, name: str, unit: str, **style: Any) -> None:
    """Add a trace of time and cost of plans, with their settings as hover texts."""
    figure.add_scatter(
        x=plans.seconds,
        y=plans.cost,
        text=format_plans(plans),
        hovertemplate=f"%{{text}}<br>%{{x:,.3~r}} s, %{{y:,.3~r}} {unit}{NO_TRACE_NAME}",
        name=name,
        **style,
    )


def name_trace(name: str, device: str) -> str:
    """Return the name of a trace with its device, if it is of one."""
    return f"{name}, {device}" if device else name


def list_fronts(front: pd.DataFrame, in_dollars: bool) -> list[tuple[str, pd.DataFrame]]:
    """Return the lines of the front: one in dollars, one for each device in worker-seconds, which are not alike."""
    if in_dollars or front.device.nunique() < 2:
        return [("", front)]
    return [(device, front[front.device == device]) for device in front.device.unique().tolist()]


def mark_measured(plans: pd.DataFrame, index: int = 0) -> list[str]:
    """Return the symbol of each plan: filled where its time follows from measurements, hollow where it is predicted."""
    return [series_symbol(index, bool(measured)) for measured in plans.measured]


def build_deadline_slider(document: PlanDocument) -> JsonObject | None:
    """Build the deadline slider of the Pareto front; None with fewer than two plans, or costs that are not alike."""
    in_dollars = has_cost_in_dollars(document)
    front, unit = settings_by_device(document.front, in_dollars), "dollars" if in_dollars else "worker_seconds"
    if len(front) < 2 or len(list_fronts(front, in_dollars)) > 1:
        return None
    plans = [
        {"words": words, "seconds": seconds, unit: cost}
        for words, seconds, cost in zip(format_plans(front), front.seconds, front.cost, strict=True)
    ]
    low, high = float(front.seconds.min()), float(front.seconds.max())
    start = document.knee.seconds.value if document.knee else high
    slider = {"label": "deadline", "plans": plans, "mark": len(pareto_figure(document).data) - 1}
    return slider | {"low": low * 0.9, "high": high * 1.1, "value": start}


def choose_heatmap_unit(document: PlanDocument) -> tuple[float, str]:
    """Return the unit of all times in the heat map, with its size in seconds: that of the shortest time."""
    return choose_time_unit(float(candidate_plans(document).seconds.min()))


def time_heatmap_figure(document: PlanDocument) -> go.Figure:
    """Draw the time to the target by workers and batch size per worker, dark blue for fast."""
    plans = candidate_plans(document).sort_values("nodes").drop_duplicates(["workers", "batch"])
    grid = plans.pivot_table(index="workers", columns="batch", values="seconds")
    size, unit = choose_heatmap_unit(document)
    texts = [
        ["" if np.isnan(value) else format_significant(value / size, 2) for value in row] for row in grid.to_numpy()
    ]
    values = np.log10(grid.to_numpy(dtype=float))
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=[f"{batch:,}" for batch in grid.columns],
            y=[str(workers) for workers in grid.index],
            text=texts,
            texttemplate="%{text}",
            textfont={"color": "#ffffff"},
            colorscale=[(0, "#00304d"), (1, "#8a5a00")],
            hovertemplate=f"%{{y}} workers x %{{x}}: %{{text}} {unit}{NO_TRACE_NAME}",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(title_text="batch size per worker, examples", type="category", showgrid=False)
    figure.update_yaxes(title_text="workers", type="category", showgrid=False)
    return apply_theme(figure, 160 + 44 * len(grid))
