"""Curves of several experiments in one figure: metrics of runs, or times of plans."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from dashboards.page import Panel
from dashboards.theme import apply_theme, series_color, series_symbol

READING_OF_COMPARISON = (
    "Each experiment has a colour and a mark. Curves of runs show the metric on the validation split over the examples"
    " seen; curves of sweeps show the shortest predicted time to the target over the global batch."
)


class NamedCurve(NamedTuple):
    """Curve of one experiment: its points, and what its axes are."""

    name: str
    curve: dict[str, Any]

    @property
    def axes(self) -> tuple[str, str]:
        """Titles of the x and the y axis."""
        return self.curve["across"], self.curve["up"]


def build_comparison_panel(curves: Sequence[NamedCurve]) -> Panel | None:
    """Build the panel of curves that have the axes of the first one; None without curves."""
    if not curves:
        return None
    across, up = curves[0].axes
    figure = go.Figure()
    for index, (name, curve) in enumerate(each for each in curves if each.axes == (across, up)):
        marker = {"symbol": series_symbol(index), "size": 7}
        style = {"mode": "lines+markers", "line_color": series_color(index), "marker": marker}
        figure.add_scatter(x=curve["x"], y=curve["y"], name=name, **style)
    figure.update_xaxes(title_text=across)
    figure.update_yaxes(title_text=up)
    figure.update_layout(hovermode="x unified")
    others = [each.name for each in curves if each.axes != (across, up)]
    left_out = f" Left out, because their axes are others: {', '.join(others)}." if others else ""
    caption = f"{up[:1].upper()}{up[1:]} over {across}.{left_out}"
    figure = apply_theme(figure, 420)
    return Panel(
        name="compared", figure=figure, caption=caption, reading=READING_OF_COMPARISON if len(curves) > 1 else ""
    )
