"""Visual language of all panels: colours for the colour-blind, filled marks for measured, hollow for predicted.

Backgrounds are transparent and the page sets the colour of texts, so that panels suit a light and a dark page.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

import plotly.graph_objects as go

from equipoise.formatting import format_number
from equipoise.planning.interval import IntervalEstimate

BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
NEUTRAL_COLOR = "#8a8a8a"
SERIES_COLORS = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY)
"""colour-blind safe palette of Okabe and Ito, in the order in which series take the colours"""
SERIES_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""marker of each series, for readers who cannot tell the colours apart"""
MEASURED_SUFFIX, PREDICTED_SUFFIX = "", "-open"
"""suffix of a marker's symbol: filled for measured, hollow for predicted"""
PANEL_HEIGHT_PIXELS = 340  # of a panel with one row
BAND_OPACITY = 0.18  # of the band of an interval behind its line

PLOTLY_TEMPLATE = go.layout.Template(
    layout={
        "colorway": SERIES_COLORS,
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        "hovermode": "closest",
        "xaxis": {"automargin": True, "gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "ticks": "outside"},
        "yaxis": {"automargin": True, "gridcolor": "rgba(128,128,128,0.25)", "zeroline": False, "ticks": "outside"},
        "bargap": 0.15,
        "showlegend": True,
    }
)


def apply_theme(figure: go.Figure, height: int = PANEL_HEIGHT_PIXELS) -> go.Figure:
    """Apply the template and the height in pixels to a figure, and return it."""
    return figure.update_layout(template=PLOTLY_TEMPLATE, height=height)


def series_color(index: int) -> str:
    """Return the colour of a series by its index."""
    return SERIES_COLORS[index % len(SERIES_COLORS)]


def series_symbol(index: int, measured: bool = True) -> str:
    """Return the marker symbol of a series by its index: filled if measured, hollow if predicted."""
    return SERIES_SYMBOLS[index % len(SERIES_SYMBOLS)] + (MEASURED_SUFFIX if measured else PREDICTED_SUFFIX)


def translucent_color(color: str) -> str:
    """Return a colour `#rrggbb` with the opacity of an interval's band."""
    red, green, blue = (int(color[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


def set_log_axis(figure: go.Figure, axis: str, values: Iterable[float], title: str, **subplot: int) -> None:
    """Make an axis logarithmic, with plain numbers at the ticks, as many as there is room for."""
    shown = [float(value) for value in values if value and value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
    ratio = max(shown) / min(shown)
    steps = (1, 1.5, 2, 3, 4, 5, 7) if ratio < 4 else (1, 2, 5) if ratio <= 3000 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    update(type="log", tickvals=ticks, ticktext=[format_number(tick) for tick in ticks], title_text=title, **subplot)


def format_seconds(value: float | None) -> str:
    """Format a time given in seconds in the unit that reads best, such as `12 min` or `20 ms`."""
    if value is None or not math.isfinite(value):
        return "-"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if abs(value) >= size * (2 if size > 1 else 1):
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def format_percent(value: float) -> str:
    """Format a fraction as a percentage."""
    return f"{value:.1%}"


def format_interval(estimate: IntervalEstimate | None, unit: str = "") -> str:
    """Format a value with its interval, such as `5 (4 to 6) s`."""
    if not estimate:
        return "-"
    value, low, high = map(format_number, (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high}){unit and ' ' + unit}"


def format_utc(seconds: float) -> str:
    """Format seconds since 1970 as date and time in UTC; an empty string for 0."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""
