"""Plans against each other: time against cost, and time over workers and batch."""

import numpy as np
import plotly.graph_objects as go

from dashboards import theme as style
from dashboards.plan_tables import Facts, options, worded


def front(facts: Facts) -> go.Figure:
    """Time against cost; what nothing beats is joined, its knee and the cheapest within a deadline are marked."""
    plans, along = options(facts), options({**facts, "options": facts["front"]})
    figure = go.Figure()
    hover = worded(plans)
    marker = {"color": style.GREY, "symbol": ["circle" if one else "circle-open" for one in plans.measured], "size": 7}
    figure.add_scatter(
        x=plans.seconds, y=plans.worker_seconds, mode="markers", marker=marker, text=hover, name="every plan"
    )
    figure.add_scatter(
        x=along.seconds,
        y=along.worker_seconds,
        mode="lines+markers",
        line_color=style.BLUE,
        text=worded(along),
        name="the front",
    )
    if knee := facts.get("knee"):
        figure.add_scatter(
            x=[knee["seconds"]["value"]],
            y=[knee["worker_seconds"]],
            mode="markers",
            marker={"symbol": "diamond-open", "size": 16, "color": style.ORANGE, "line_width": 2},
            name="its knee",
        )
    figure.add_scatter(
        x=[],
        y=[],
        mode="markers",
        marker={"symbol": "star", "size": 18, "color": style.AMBER, "line": {"width": 1, "color": style.GREY}},
        name="cheapest within the deadline",
    )
    style.logarithmic(figure, "x", plans.seconds, "seconds to the target")
    style.logarithmic(figure, "y", plans.worker_seconds, "worker-seconds")
    return style.styled(figure, 420)


def deadline(facts: Facts) -> Facts | None:
    """What a slider chooses among; None where there is no choice."""
    along = options({**facts, "options": facts["front"]})
    if len(along) < 2:
        return None
    plans = [
        {"words": words, "seconds": seconds, "worker_seconds": cost}
        for words, seconds, cost in zip(worded(along), along.seconds, along.worker_seconds, strict=True)
    ]
    low, high = float(along.seconds.min()), float(along.seconds.max())
    start = facts["knee"]["seconds"]["value"] if facts.get("knee") else high
    told = {"label": "a deadline", "plans": plans, "mark": len(front(facts).data) - 1}
    return told | {"low": low * 0.9, "high": high * 1.1, "value": start}


def heat(facts: Facts) -> go.Figure:
    """Time to the target over workers and batch: dark is fast."""
    plans = options(facts).sort_values("nodes").drop_duplicates(["workers", "batch"])
    square = plans.pivot_table(index="workers", columns="batch", values="seconds")
    texts = [["" if np.isnan(value) else style.seconds(value) for value in row] for row in square.to_numpy()]
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
    return style.styled(figure, 160 + 44 * len(square))
