"""Visual language of all panels: colours for the colour-blind, filled marks for measured, hollow for predicted.

Backgrounds are transparent and the page sets the colour of texts, so that panels suit a light and a dark page.
"""

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import plotly.graph_objects as go

from equipoise.formatting import format_number, format_units
from equipoise.planning.interval import IntervalEstimate

BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
NEUTRAL_COLOR = "#8a8a8a"
STEP_PART_COLORS = {"compute": SKY, "exchange": ORANGE, "data": GREEN}
"""colours of the parts of a step's time, which lie beside lines of other colours on the page of a run"""
SERIES_COLORS = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY)
"""colour-blind safe palette of Okabe and Ito, in the order in which series take the colours"""
SERIES_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""marker of each series, for readers who cannot tell the colours apart"""
MEASURED_SUFFIX, PREDICTED_SUFFIX = "", "-open"
"""suffix of a marker's symbol: filled for measured, hollow for predicted"""
PANEL_HEIGHT_PIXELS = 340  # of a panel with one row
WIDE_INTERVAL_SHARE = 0.1  # of its value: an estimate with a wider interval is given with two digits
BAND_OPACITY = 0.18  # of the band of an interval behind its line

AXIS = {
    "automargin": True,
    "gridcolor": "rgba(128,128,128,0.25)",
    "zeroline": False,
    "ticks": "outside",
    "separatethousands": True,
    "exponentformat": "none",
}
PLOTLY_TEMPLATE = go.layout.Template(
    layout={
        "colorway": SERIES_COLORS,
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 24, "t": 8, "b": 8},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "#1c2126",
            "bordercolor": NEUTRAL_COLOR,
        },  # white on it is readable, on amber it is not
        "xaxis": AXIS,
        "yaxis": AXIS,
        "bargap": 0.15,
        "showlegend": True,
    }
)


def apply_theme(figure: go.Figure, height: int = PANEL_HEIGHT_PIXELS) -> go.Figure:
    """Apply the template and the height in pixels to a figure, and return it."""
    return figure.update_layout(template=PLOTLY_TEMPLATE, height=height)


def share_x_axis(figure: go.Figure, rows: int) -> go.Figure:
    """Put the rows of a figure on one x axis, below the last row: pointing at a row then shows the values of all."""
    bottom = f"x{rows}"
    figure.update_traces(xaxis=bottom).update_yaxes(anchor=bottom)
    for shape in figure.layout.shapes:
        shape.xref = re.sub(r"^x\d*", bottom, shape.xref)
    figure.layout[f"xaxis{rows}"].update(
        matches=None,
        showgrid=True,
        showspikes=True,
        spikemode="across",
        spikethickness=1,
        spikedash="dot",
        spikecolor=NEUTRAL_COLOR,
    )
    figure.update_layout({f"xaxis{row if row > 1 else ''}": None for row in range(1, rows)})
    return figure.update_layout(hovermode="x unified", hoversubplots="axis")


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
    steps = (1, 1.5, 2, 3, 4, 5, 7) if ratio < 8 else (1, 2, 5) if ratio <= 300 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    update(type="log", tickvals=ticks, ticktext=[format_number(tick) for tick in ticks], title_text=title, **subplot)


def format_significant(value: float | None, digits: int = 3) -> str:
    """Format a measured number to its significant digits, such as `11,900`; a dash for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "-"
    rounded = round_significant(value, digits)
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def round_significant(value: float, digits: int = 3) -> float:
    """Round a number to its significant digits."""
    return float(f"{value:.{digits}g}")


def format_examples_interval(estimate: IntervalEstimate | None, unit: str, units_per_example: int) -> str:
    """Format examples with their interval and in another unit, as `26 (17 to 43) examples (1,664 tokens)`."""
    if not estimate:
        return "-"
    rounded = round_significant(estimate.value, count_justified_digits(estimate))
    return f"{format_interval(estimate, 'examples')}{format_units(rounded, unit, units_per_example)}"


def count_justified_digits(estimate: IntervalEstimate) -> int:
    """Return how many digits of an estimate say something: two where its interval is wide, otherwise three."""
    return 2 if estimate.high - estimate.low > WIDE_INTERVAL_SHARE * abs(estimate.value) else 3


def choose_time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which a time reads best, with its size in seconds."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size * (2 if size > 1 else 1):
            return size, unit
    return 1e-6, "us"


def format_seconds(value: float | None) -> str:
    """Format a time given in seconds in the unit that reads best, such as `12 min` or `20 ms`."""
    if value is None or not math.isfinite(value):
        return "-"
    size, unit = choose_time_unit(value)
    return f"{format_significant(value / size)} {unit}"


def format_time_interval(estimate: IntervalEstimate) -> str:
    """Format an estimated time with its interval in one unit, such as `3.1 s (2.8 to 3.5 s)`."""
    size, unit = choose_time_unit(estimate.value)
    digits = count_justified_digits(estimate)
    parts = (estimate.value / size, estimate.low / size, estimate.high / size)
    value, low, high = (format_significant(part, digits) for part in parts)
    return f"{value} {unit} ({low} to {high} {unit})"


def format_percent(value: float) -> str:
    """Format a fraction as a percentage."""
    return f"{value:.1%}"


def format_interval(estimate: IntervalEstimate | None, unit: str = "") -> str:
    """Format a value with its interval to the digits that the interval justifies, such as `5 (4 to 6) s`."""
    if not estimate:
        return "-"
    digits = count_justified_digits(estimate)
    value, low, high = (format_significant(part, digits) for part in (estimate.value, estimate.low, estimate.high))
    return f"{value} ({low} to {high}){unit and ' ' + unit}"


def format_utc(seconds: float) -> str:
    """Format seconds since 1970 as date and time in UTC; an empty string for 0."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""
