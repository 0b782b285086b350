"""Lines and marks of the trade-off: what was measured, what is predicted, the plan and its runs."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from dashboards.plan_confirmation import describe_run
from dashboards.theme import AMBER, NEUTRAL_COLOR, SKY, series_color, series_symbol, translucent_color
from equipoise.planning.confirmation import ConfirmationResult
from equipoise.planning.document import PlanEntry

EXAMPLE_UNIT, EXAMPLES_UNIT, TARGET_UNIT = "ms per example", "examples to the target", "seconds to the target"
ROW_UNITS = (EXAMPLE_UNIT, EXAMPLES_UNIT, TARGET_UNIT)
"""titles of the rows' axes, from top to bottom"""
FIT_COLOR = SKY  # of the examples to the target; no cluster shape has it
RUN_SYMBOLS = {"confirmed": "hexagram", "refuted": "x"}
"""mark of a confirming run by its outcome"""


def add_interval(
    figure: go.Figure,
    rows: Mapping[str, int],
    unit: str,
    table: pd.DataFrame,
    column: str,
    color: str,
    label: str,
    scale: float,
) -> None:
    """Add a predicted line with the band of its interval."""
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
        row=rows[unit],
        col=1,
    )
    figure.add_scatter(
        x=table.global_batch,
        y=table[column] * scale,
        mode="lines",
        line={"color": color, "dash": "dot"},
        name=label,
        legendgroup=label,
        hovertemplate=f"%{{y:,.3~r}} {unit}, predicted",
        row=rows[unit],
        col=1,
    )


def add_measurements(
    figure: go.Figure,
    rows: Mapping[str, int],
    table: pd.DataFrame,
    series_index: int,
    label: str,
    show_legend: bool,
) -> None:
    """Add marks of measured step times, with a legend entry if no predicted line has one."""
    figure.add_scatter(
        x=table.global_batch,
        y=table.seconds * 1000,
        mode="markers",
        marker={"color": series_color(series_index), "symbol": series_symbol(series_index), "size": 8},
        name=label,
        legendgroup=label,
        showlegend=show_legend,
        hovertemplate=f"%{{y:,.3~r}} {EXAMPLE_UNIT}, measured",
        row=rows[EXAMPLE_UNIT],
        col=1,
    )


def add_trials(figure: go.Figure, rows: Mapping[str, int], trials: pd.DataFrame) -> None:
    """Add the trials at the best learning rate of their batch; a triangle where the target was not reached."""
    best = trials[trials.best]
    kinds = (("trials", best[best.reached == 1], "circle"), ("not reached", best[best.reached == 0], "triangle-up"))
    for name, chosen, symbol in kinds:
        marker = {"color": NEUTRAL_COLOR, "symbol": symbol, "size": 7}
        hover = [f"lr {lr:.3g}, seed {seed:.0f}" for lr, seed in zip(chosen.lr, chosen.seed, strict=True)]
        figure.add_scatter(
            x=chosen.global_batch,
            y=chosen.examples,
            mode="markers",
            marker=marker,
            name=name,
            text=hover,
            hovertemplate="%{y:,.0f} examples, %{text}",
            row=rows[EXAMPLES_UNIT],
            col=1,
        )


def add_time_to_target(
    figure: go.Figure, rows: Mapping[str, int], table: pd.DataFrame, series_index: int, label: str
) -> None:
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
        hovertemplate=f"%{{y:,.3~r}} {TARGET_UNIT}",
        row=rows[TARGET_UNIT],
        col=1,
    )


def add_plan(figure: go.Figure, rows: Mapping[str, int], plan: PlanEntry) -> None:
    """Add the chosen plan as a star, and a vertical line at its global batch."""
    figure.add_scatter(
        x=[plan.global_batch],
        y=[plan.seconds.value],
        mode="markers",
        marker={"symbol": "star", "size": 22, "color": AMBER, "line": {"width": 1, "color": NEUTRAL_COLOR}},
        name="the plan",
        hovertemplate=f"%{{y:,.3~r}} {TARGET_UNIT}, predicted",
        row=rows[TARGET_UNIT],
        col=1,
    )
    figure.add_vline(plan.global_batch, line={"dash": "dash", "width": 1, "color": NEUTRAL_COLOR})


def add_confirmations(
    figure: go.Figure,
    rows: Mapping[str, int],
    runs: Sequence[ConfirmationResult],
    shapes: Sequence[tuple[int, int]],
) -> None:
    """Add the training runs that confirmed or refuted a plan, where they ended."""
    colors = {shape: series_color(index) for index, shape in enumerate(shapes)}
    for status, symbol in RUN_SYMBOLS.items():
        chosen = [run for run in runs if run.status == status]
        if chosen:
            figure.add_scatter(
                x=[run.global_batch for run in chosen],
                y=[run.predicted.high if run.seconds is None else run.seconds for run in chosen],
                mode="markers",
                marker={
                    "symbol": symbol,
                    "size": 10,
                    "color": [colors.get((run.nodes, run.workers), NEUTRAL_COLOR) for run in chosen],
                    "line": {"width": 1, "color": NEUTRAL_COLOR},
                },
                text=[describe_run(run) for run in chosen],
                hovertemplate="%{text}<extra></extra>",
                name=f"a run, {status}",
                row=rows[TARGET_UNIT],
                col=1,
            )
