"""One run: what it learned, how fast it went, how noisy its gradients were."""

from dataclasses import fields

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import Panel, Table
from dashboards.theme import BLUE, GREEN, NEUTRAL_COLOR, ORANGE, apply_theme, format_seconds, set_log_axis
from equipoise.formatting import format_number
from equipoise.runs.record import Lap, Record, mean_noise_scale

LAPS_PER_NOISE_POINT = 20  # that a point of the noise scale averages over: single draws say little


def laps_table(record: Record) -> pd.DataFrame:
    """The laps as a table, with the noise scale averaged over the laps before."""
    table = pd.DataFrame([vars(lap) for lap in record.laps], columns=[field.name for field in fields(Lap)])
    terms = pd.DataFrame(
        [(*lap.noise_terms(), lap.draws) if lap.noise_terms() else (0.0, 0.0, 0) for lap in record.laps],  # type: ignore[misc]
        columns=["signal", "variance", "draws"],
    )
    sums = terms[["signal", "variance"]].mul(terms.draws, axis=0).rolling(LAPS_PER_NOISE_POINT, min_periods=1).sum()
    table["noise"] = (sums.variance / sums.signal).where((sums.signal > 0) & (sums.variance > 0))
    return table


def laps_figure(table: pd.DataFrame, target: float) -> go.Figure:
    """The table of `laps_table` as four panels over examples seen."""
    panels = make_subplots(
        rows=4, shared_xaxes=True, vertical_spacing=0.05, specs=[[{"secondary_y": True}], *[[{}]] * 3]
    )
    evaluated = table.dropna(subset="metric")
    add_line(panels, 1, table.seen, table.loss, "loss, training", NEUTRAL_COLOR)
    add_line(panels, 1, evaluated.seen, evaluated.metric, "metric, validation", BLUE, secondary_y=True)
    panels.add_hline(target, line_dash="dot", line_color=BLUE, row=1, col=1, secondary_y=True)
    add_line(panels, 2, table.seen, table.examples / table.seconds, "examples/s", BLUE)
    for part, colour in (("compute", BLUE), ("exchange", ORANGE), ("data", GREEN)):
        spent = table[f"{part}_seconds"] / table.steps * 1000
        if not spent.any():  # one worker exchanges nothing
            continue
        panels.add_bar(x=table.seen, y=spent, name=part, marker_color=colour, row=3, col=1)
    add_line(panels, 4, table.seen, table.noise, "noise scale", BLUE)
    panels.update_yaxes(title_text="loss", row=1, col=1, secondary_y=False)
    shares = {"range": [0, 1.02], "dtick": 0.25, "tickmode": "auto"}
    panels.update_yaxes(title_text="metric", **shares, row=1, col=1, secondary_y=True)
    panels.update_yaxes(title_text="examples/s", rangemode="tozero", row=2, col=1)
    panels.update_yaxes(title_text="ms a step", row=3, col=1)
    set_log_axis(panels, "y", table.noise.dropna(), "noise, examples", row=4, col=1)
    panels.update_xaxes(title_text="examples seen", row=4, col=1)
    return apply_theme(panels, 860).update_layout(barmode="stack", bargap=0, legend={"y": 1.02, "traceorder": "normal"})


def add_line(
    figure: go.Figure,
    row: int,
    x: "pd.Series[float]",
    y: "pd.Series[float]",
    name: str,
    color: str,
    **axis_options: bool,
) -> None:
    """A line in a row of the panels."""
    mode = "lines" if len(x) > 2 else "lines+markers"
    figure.add_scatter(x=x, y=y, name=name, mode=mode, line_color=color, row=row, col=1, **axis_options)


def run_facts(record: Record) -> dict[str, str]:
    """What came of it, in words."""
    trial, noise = record.config, mean_noise_scale(record.laps)
    return {
        "workload": trial.workload,
        "status": record.outcome,
        "workers x batch": f"{trial.workers} x {trial.batch_size}"
        + (f" x {trial.grad_accumulation}" * (trial.grad_accumulation > 1)),
        "learning rate": f"{trial.lr:g}",
        "examples to the target": format_number(record.examples_to_target),
        "training": format_seconds(record.seconds),
        "rate": f"{format_number(record.examples_per_second)} examples/s",
        "test": format_number(record.test),
        "noise scale": "not measurable" if noise is None else f"about {format_number(noise)} examples",
    }


def build_run_panels(record: Record) -> list[Panel]:
    """The laps, drawn."""
    table = laps_table(record)
    says = "Loss and metric, rate, where the time of a step goes, and the noise scale of the gradients, as it learned."
    columns = ["seen", "loss", "metric", "examples", "seconds", "compute_seconds", "exchange_seconds", "data_seconds"]
    rows = [[None if pd.isna(value) else value for value in row] for row in table[columns].itertuples(index=False)]
    numbers = Table(name="laps", columns=[name.replace("_", " ") for name in columns], rows=rows)
    return [Panel(name="laps-panel", figure=laps_figure(table, record.target), caption=says, data_table=numbers)]
