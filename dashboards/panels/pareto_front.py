"""Panels that compare plans: time against cost with the Pareto front, and time by workers and batch size."""

import numpy as np
import plotly.graph_objects as go

from dashboards.plan_tables import candidate_plans, format_plans, settings_to_table
from dashboards.theme import AMBER, BLUE, NEUTRAL_COLOR, ORANGE, apply_theme, format_seconds, set_log_axis
from equipoise.planning.document import PlanDocument
from equipoise.type_aliases import JsonObject


def pareto_figure(document: PlanDocument) -> go.Figure:
    """Draw time against cost of every plan, the Pareto front with its knee, and the cheapest plan within a deadline."""
    plans, front = candidate_plans(document), settings_to_table(document.front)
    figure = go.Figure()
    hover = format_plans(plans)
    marker = {
        "color": NEUTRAL_COLOR,
        "symbol": ["circle" if measured else "circle-open" for measured in plans.measured],
        "size": 7,
    }
    figure.add_scatter(
        x=plans.seconds, y=plans.worker_seconds, mode="markers", marker=marker, text=hover, name="every plan"
    )
    figure.add_scatter(
        x=front.seconds,
        y=front.worker_seconds,
        mode="lines+markers",
        line_color=BLUE,
        text=format_plans(front),
        name="the front",
    )
    if knee := document.knee:
        figure.add_scatter(
            x=[knee.seconds.value],
            y=[knee.worker_seconds],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 16, "color": ORANGE, "line_width": 2},
            name="knee of the front",
        )
    figure.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        name="cheapest within the deadline",
    )
    set_log_axis(figure, "x", plans.seconds, "seconds to the target")
    set_log_axis(figure, "y", plans.worker_seconds, "worker-seconds")
    return apply_theme(figure, 420)


def build_deadline_slider(document: PlanDocument) -> JsonObject | None:
    """Build the deadline slider of the Pareto front; None if the front has fewer than two plans."""
    front = settings_to_table(document.front)
    if len(front) < 2:
        return None
    plans = [
        {"words": words, "seconds": seconds, "worker_seconds": cost}
        for words, seconds, cost in zip(format_plans(front), front.seconds, front.worker_seconds, strict=True)
    ]
    low, high = float(front.seconds.min()), float(front.seconds.max())
    start = document.knee.seconds.value if document.knee else high
    slider = {"label": "deadline", "plans": plans, "mark": len(pareto_figure(document).data) - 1}
    return slider | {"low": low * 0.9, "high": high * 1.1, "value": start}


def time_heatmap_figure(document: PlanDocument) -> go.Figure:
    """Draw the time to the target by workers and batch size per worker, dark blue for fast."""
    plans = candidate_plans(document).sort_values("nodes").drop_duplicates(["workers", "batch"])
    grid = plans.pivot_table(index="workers", columns="batch", values="seconds")
    texts = [["" if np.isnan(value) else format_seconds(value) for value in row] for row in grid.to_numpy()]
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
            hovertemplate="%{y} workers x %{x}: %{text}<extra></extra>",
            showscale=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(title_text="batch size per worker, examples", type="category")
    figure.update_yaxes(title_text="workers", type="category")
    return apply_theme(figure, 160 + 44 * len(grid))
