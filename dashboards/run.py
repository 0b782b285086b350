"""One run on a page: what it learned, how fast it went, how noisy its gradients were."""

from dataclasses import fields

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from equipoise.record import Lap, Record

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"  # Okabe and Ito's, told apart by all eyes
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


def figure(table: pd.DataFrame, title: str, target: float) -> go.Figure:
    """The table of `laps` as three panels over examples seen."""
    panels = make_subplots(
        rows=3,
        shared_xaxes=True,
        vertical_spacing=0.07,
        specs=[[{"secondary_y": True}], [{}], [{}]],
    )
    evaluated = table.dropna(subset="metric")
    line(panels, 1, table.seen, table.loss, "loss, training", GREY)
    line(panels, 1, evaluated.seen, evaluated.metric, "metric, validation", BLUE, secondary_y=True)
    panels.add_hline(target, line_dash="dot", line_color=BLUE, row=1, col=1, secondary_y=True)
    for part, colour in (("compute", BLUE), ("exchange", ORANGE), ("data", GREEN)):
        panels.add_bar(
            x=table.seen,
            y=table[f"{part}_seconds"] / table.steps * 1000,
            name=part,
            marker_color=colour,
            row=2,
            col=1,
        )
    line(panels, 3, table.seen, table.noise, "noise scale", BLUE)
    panels.update_yaxes(title_text="loss", row=1, col=1, secondary_y=False)
    panels.update_yaxes(
        title_text="metric", range=[0, 1.02], dtick=0.25, tickmode="auto", row=1, col=1, secondary_y=True
    )
    panels.update_yaxes(title_text="ms a step", row=2, col=1)
    panels.update_yaxes(title_text="noise, examples", type="log", dtick="D2", row=3, col=1)
    panels.update_xaxes(title_text="examples seen", row=3, col=1)
    panels.update_layout(title=title, barmode="stack", template="plotly_white", bargap=0, height=720)
    return panels


def line(
    panels: go.Figure, row: int, x: "pd.Series[float]", y: "pd.Series[float]", name: str, colour: str, **place: bool
) -> None:
    """A line in a row of the panels."""
    panels.add_scatter(x=x, y=y, name=name, mode="lines", line_color=colour, row=row, col=1, **place)
