"""Plans against each other: time against cost, and time over workers and batch."""

import numpy as np
import plotly.graph_objects as go

from dashboards.plan_tables import candidate_plans, format_plans
from dashboards.theme import AMBER, BLUE, NEUTRAL_COLOR, ORANGE, apply_theme, format_seconds, set_log_axis
from equipoise.type_aliases import JsonObject


def pareto_figure(plan_json: JsonObject) -> go.Figure:
    """Time against cost; what nothing beats is joined, its knee and the cheapest within a deadline are marked."""
    plans, along = candidate_plans(plan_json), candidate_plans({**plan_json, "options": plan_json["front"]})
    figure = go.Figure()
    hover = format_plans(plans)
    marker = {
        "color": NEUTRAL_COLOR,
        "symbol": ["circle" if one else "circle-open" for one in plans.measured],
        "size": 7,
    }
    figure.add_scatter(
        x=plans.seconds, y=plans.worker_seconds, mode="markers", marker=marker, text=hover, name="every plan"
    )
    figure.add_scatter(
        x=along.seconds,
        y=along.worker_seconds,
        mode="lines+markers",
        line_color=BLUE,
        text=format_plans(along),
        name="the front",
    )
    if knee := plan_json.get("knee"):
        figure.add_scatter(
            x=[knee["seconds"]["value"]],
            y=[knee["worker_seconds"]],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 16, "color": ORANGE, "line_width": 2},
            name="its knee",
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


def build_deadline_slider(plan_json: JsonObject) -> JsonObject | None:
    """What a slider chooses among; None where there is no choice."""
    along = candidate_plans({**plan_json, "options": plan_json["front"]})
    if len(along) < 2:
        return None
    plans = [
        {"words": words, "seconds": seconds, "worker_seconds": cost}
        for words, seconds, cost in zip(format_plans(along), along.seconds, along.worker_seconds, strict=True)
    ]
    low, high = float(along.seconds.min()), float(along.seconds.max())
    start = plan_json["knee"]["seconds"]["value"] if plan_json.get("knee") else high
    told = {"label": "a deadline", "plans": plans, "mark": len(pareto_figure(plan_json).data) - 1}
    return told | {"low": low * 0.9, "high": high * 1.1, "value": start}


def time_heatmap_figure(plan_json: JsonObject) -> go.Figure:
    """Time to the target over workers and batch: dark is fast."""
    plans = candidate_plans(plan_json).sort_values("nodes").drop_duplicates(["workers", "batch"])
    square = plans.pivot_table(index="workers", columns="batch", values="seconds")
    texts = [["" if np.isnan(value) else format_seconds(value) for value in row] for row in square.to_numpy()]
    values = np.log10(square.to_numpy(dtype=float))
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=[f"{batch:,}" for batch in square.columns],
            y=[str(workers) for workers in square.index],
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
    figure.update_xaxes(title_text="batch of a worker, examples", type="category")
    figure.update_yaxes(title_text="workers", type="category")
    return apply_theme(figure, 160 + 44 * len(square))
