"""Colours, markers, axes and formats that all panels share."""

import math

import plotly.graph_objects as go
import pytest

from dashboards.theme import (
    BAND_OPACITY,
    SERIES_COLORS,
    SERIES_SYMBOLS,
    apply_theme,
    count_justified_digits,
    format_interval,
    format_percent,
    format_seconds,
    format_significant,
    format_time_interval,
    format_utc,
    series_color,
    series_symbol,
    set_log_axis,
    translucent_color,
)
from equipoise.planning.document import IntervalEstimate


def log_ticks(values):
    """Return the positions and texts of the ticks of a logarithmic axis with these values."""
    figure = go.Figure()
    set_log_axis(figure, "y", values, "")
    return dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))


def test_series_take_the_colours_and_markers_in_order_and_then_again():
    assert [series_color(index) for index in range(7)] == [*SERIES_COLORS, SERIES_COLORS[0]]
    assert [series_symbol(index) for index in range(7)] == [*SERIES_SYMBOLS, SERIES_SYMBOLS[0]]
    assert len({*SERIES_COLORS}) == len({*SERIES_SYMBOLS}) == 6


def test_predicted_markers_are_hollow():
    assert series_symbol(1, measured=True) == "square"
    assert series_symbol(1, measured=False) == "square-open"


def test_translucent_colour_is_the_same_colour():
    assert translucent_color("#0a64ff") == f"rgba(10,100,255,{BAND_OPACITY})"
    assert 0 < BAND_OPACITY < 0.5  # what lies behind a band is visible


def test_themed_figure_suits_light_and_dark_pages():
    figure = go.Figure()
    layout = apply_theme(figure, 123).layout
    assert layout.height == 123
    template = layout.template.layout
    assert template.paper_bgcolor == template.plot_bgcolor == "rgba(0,0,0,0)"
    assert template.font.color is None  # the page sets it
    assert template.colorway == SERIES_COLORS
    assert apply_theme(go.Figure()).layout.height >= 300


def test_theme_shows_the_legend_above_the_figure():
    template = apply_theme(go.Figure()).layout.template.layout
    assert template.showlegend
    assert template.legend.y > 1 and template.legend.yanchor == "bottom"  # above, beginning at the left
    assert template.legend.x == 0 and template.legend.xanchor == "left"
    for axis in (template.xaxis, template.yaxis):
        assert axis.automargin and not axis.zeroline


@pytest.mark.parametrize(
    ("highest", "steps"),
    [
        (7.9, [1, 1.5, 2, 3, 4, 5, 7]),
        (8.0, [1, 2, 5]),
        (300.0, [1, 2, 5]),
        (301.0, [1]),
    ],
)
def test_ticks_are_as_many_as_there_is_room_for(highest, steps):
    assert [tick for tick in log_ticks([1.0, highest]) if tick < 10] == pytest.approx(steps)


def test_ticks_reach_from_the_power_below_to_the_power_above():
    ticks = log_ticks([0.3, 40.0])
    assert min(ticks) == pytest.approx(0.1) and max(ticks) == pytest.approx(500)
    assert [*ticks.values()][:4] == ["0.1", "0.2", "0.5", "1"]
    assert log_ticks([3e5, 4e5])[2e5] == "200,000"


def test_values_that_have_no_logarithm_are_ignored():
    assert log_ticks([None, 0.0, -5.0, math.inf, math.nan, 2.0]) == log_ticks([2.0])
    assert log_ticks([]) == log_ticks([1.0])


def test_only_the_named_axis_becomes_logarithmic():
    figure = go.Figure()
    set_log_axis(figure, "x", [1.0, 2.0], "seconds")
    assert (figure.layout.xaxis.type, figure.layout.xaxis.title.text) == ("log", "seconds")
    assert figure.layout.yaxis.type is None
    set_log_axis(figure, "y", [1.0, 2.0], "cost")
    assert (figure.layout.yaxis.type, figure.layout.yaxis.title.text) == ("log", "cost")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (0.000999, "999 us"),
        (0.00099996, "1,000 us"),
        (0.001, "1 ms"),
        (0.999, "999 ms"),
        (1.0, "1 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7199.0, "120 min"),
        (7200.0, "2 h"),
        (2 * 86400 - 3600.0, "47 h"),
        (2 * 86400.0, "2 d"),
        (-90.0, "-90 s"),
        (math.inf, "-"),
        (math.nan, "-"),
    ],
)
def test_time_is_given_in_the_unit_that_reads_best(seconds, text):
    assert format_seconds(seconds) == text


def test_interval_is_given_with_its_unit():
    estimate = IntervalEstimate(value=5.0, low=4.0, high=6.5)
    assert format_interval(estimate) == "5 (4 to 6.5)"
    assert format_interval(estimate, "s") == "5 (4 to 6.5) s"
    assert format_interval(None, "s") == "-"


def test_estimates_have_the_digits_that_their_interval_justifies():
    wide, narrow = (
        IntervalEstimate(value=6392.0, low=5783.0, high=6876.0),
        IntervalEstimate(value=0.9741, low=0.965, high=0.981),
    )
    assert format_interval(wide, "examples") == "6,400 (5,800 to 6,900) examples"
    assert format_interval(narrow) == "0.974 (0.965 to 0.981)"
    assert [count_justified_digits(estimate) for estimate in (wide, narrow)] == [2, 3]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.512, 0.338, 0.724, "510 ms (340 to 720 ms)"),
        (3.11, 2.8, 3.5, "3.1 s (2.8 to 3.5 s)"),
        (130.0, 66.0, 336.0, "2.2 min (1.1 to 5.6 min)"),
        (100.0, 99.0, 101.4, "100 s (99 to 101 s)"),
    ],
)
def test_time_and_its_interval_have_one_unit(value, low, high, text):
    assert format_time_interval(IntervalEstimate(value=value, low=low, high=high)) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (11_934.0, 3, "11,900"),
        (0.012345, 3, "0.0123"),
        (98.44, 3, "98.4"),
        (31.4, 2, "31"),
        (4.56, 2, "4.6"),
        (None, 3, "-"),
        (math.inf, 3, "-"),
    ],
)
def test_measured_numbers_are_rounded_to_their_digits(value, digits, text):
    assert format_significant(value, digits) == text


def test_fractions_and_times_of_day():
    assert format_percent(0.1234) == "12.3%"
    assert format_utc(86400.0 + 3661) == "1970-01-02 01:01:01"
    assert format_utc(0.0) == ""
