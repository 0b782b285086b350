"""One run: what it learned, how fast it went, how noisy its gradients were."""

from dataclasses import fields

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards import theme as style
from dashboards.page import Panel, Table
from dashboards.theme import BLUE, GREEN, GREY, ORANGE
from equipoise.formatting import number
from equipoise.runs.record import Lap, Record, noise_scale

NOISE_LAPS = 20  # that a point of the noise scale averages over: single draws say little


def laps(record: Record) -> pd.DataFrame:
    """The laps as a table, with the noise scale averaged over the laps before."""
    table = pd.DataFrame([vars(lap) for lap in record.laps], columns=[field.name for field in fields(Lap)])
    terms = pd.DataFrame(
        [(*lap.terms(), lap.draws) if lap.terms() else (0.0, 0.0, 0) for lap in record.laps],  # type: ignore[misc]
        columns=["signal", "variance", "draws"],
    )
    sums = terms[["signal", "variance"]].mul(terms.draws, axis=0).rolling(NOISE_LAPS, min_periods=1).sum()
    table["noise"] = (sums.variance / sums.signal).where((sums.signal > 0) & (sums.variance > 0))
    return table


def figure(table: pd.DataFrame, target: float) -> go.Figure:
    """The table of `laps` as four panels over examples seen."""
    panels = make_subplots(
        rows=4, shared_xaxes=True, vertical_spacing=0.05, specs=[[{"secondary_y": True}], *[[{}]] * 3]
    )
    evaluated = table.dropna(subset="metric")
    line(panels, 1, table.seen, table.loss, "loss, training", GREY)
    line(panels, 1, evaluated.seen, evaluated.metric, "metric, validation", BLUE, secondary_y=True)
    panels.add_hline(target, line_dash="dot", line_color=BLUE, row=1, col=1, secondary_y=True)
    line(panels, 2, table.seen, table.examples / table.seconds, "examples/s", BLUE)
    for part, colour in (("compute", BLUE), ("exchange", ORANGE), ("data", GREEN)):
        spent = table[f"{part}_seconds"] / table.steps * 1000
        if not spent.any():  # one worker exchanges nothing
            continue
        panels.add_bar(x=table.seen, y=spent, name=part, marker_color=colour, row=3, col=1)
    line(panels, 4, table.seen, table.noise, "noise scale", BLUE)
    panels.update_yaxes(title_text="loss", row=1, col=1, secondary_y=False)
    shares = {"range": [0, 1.02], "dtick": 0.25, "tickmode": "auto"}
    panels.update_yaxes(title_text="metric", **shares, row=1, col=1, secondary_y=True)
    panels.update_yaxes(title_text="examples/s", rangemode="tozero", row=2, col=1)
    panels.update_yaxes(title_text="ms a step", row=3, col=1)
    style.logarithmic(panels, "y", table.noise.dropna(), "noise, examples", row=4, col=1)
    panels.update_xaxes(title_text="examples seen", row=4, col=1)
    return style.styled(panels, 860).update_layout(
        barmode="stack", bargap=0, legend={"y": 1.02, "traceorder": "normal"}
    )


def line(
    panels: go.Figure, row: int, x: "pd.Series[float]", y: "pd.Series[float]", name: str, colour: str, **place: bool
) -> None:
    """A line in a row of the panels."""
    mode = "lines" if len(x) > 2 else "lines+markers"
    panels.add_scatter(x=x, y=y, name=name, mode=mode, line_color=colour, row=row, col=1, **place)


def facts(record: Record) -> dict[str, str]:
    """What came of it, in words."""
    trial, noise = record.trial, noise_scale(record.laps)
    return {
        "workload": trial.workload,
        "ended": record.ended,
        "workers x batch": f"{trial.workers} x {trial.batch}" + (f" x {trial.accumulate}" * (trial.accumulate > 1)),
        "learning rate": f"{trial.lr:g}",
        "examples to the target": number(record.examples_to_target),
        "training": style.seconds(record.seconds),
        "rate": f"{number(record.examples_per_second)} examples/s",
        "test": number(record.test),
        "noise scale": "not measurable" if noise is None else f"about {number(noise)} examples",
    }


def panels(record: Record) -> list[Panel]:
    """The laps, drawn."""
    table = laps(record)
    says = "Loss and metric, rate, where the time of a step goes, and the noise scale of the gradients, as it learned."
    columns = ["seen", "loss", "metric", "examples", "seconds", "compute_seconds", "exchange_seconds", "data_seconds"]
    rows = [[None if pd.isna(value) else value for value in row] for row in table[columns].itertuples(index=False)]
    numbers = Table(name="laps", columns=[name.replace("_", " ") for name in columns], rows=rows)
    return [Panel(name="laps-panel", figure=figure(table, record.target), says=says, numbers=numbers)]
