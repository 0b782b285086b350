"""Panel of the time of a sum over its size by all-reduce algorithm, and tables of links and of bytes."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.theme import (
    SERIES_COLORS,
    SERIES_SYMBOLS,
    apply_theme,
    format_percent,
    format_seconds,
    format_significant,
    series_color,
    series_symbol,
    set_log_axis,
)
from equipoise.formatting import format_bit_rate, format_bytes
from equipoise.parallel.algorithm_choice import AlgorithmTiming, estimate_sum_seconds
from equipoise.parallel.fastest_ranges import FastestRange, find_fastest_ranges
from equipoise.planning.exchanges.link_report import LinkReport, LinkTiming, SumTiming

SUMS_HEIGHT_PIXELS = 520
MAX_SIZE_TICKS = 8
LINE_POINTS = 40
READING_OF_SUMS = (
    "The size of a tensor runs to the right and the time of its sum over all workers upwards, both logarithmic. Filled"
    " marks were measured: medians, with bars from the tenth to the ninetieth of a hundred sums. A dotted line is the"
    " closed form of the algorithm, whose delay and rate are fitted to its own marks: a mark off its line is an"
    " algorithm that does not behave as its form says. The lowest line is the fastest algorithm for that size."
)


def list_sum_timings(report: LinkReport) -> list[AlgorithmTiming]:
    """Return the measured seconds of the sums, from which an algorithm is chosen."""
    return [AlgorithmTiming(row.algorithm, row.bytes, row.seconds) for row in report.sums]


def sum_seconds_figure(report: LinkReport) -> go.Figure:
    """Draw the seconds of a sum over its bytes: measured marks and the line of the closed form of each algorithm."""
    figure = go.Figure()
    for index, name in enumerate(report.algorithms):
        rows = [row for row in report.sums if row.algorithm == name]
        color = series_color(index)
        # each round through the colours shifts the symbols, so that no two algorithms share both
        symbol = series_symbol((index + index // len(SERIES_COLORS)) % len(SERIES_SYMBOLS))
        add_closed_form_line(figure, rows, color)
        figure.add_scatter(
            x=[row.bytes for row in rows],
            y=[row.seconds for row in rows],
            error_y={
                "array": [row.seconds_high - row.seconds for row in rows],
                "arrayminus": [row.seconds - row.seconds_low for row in rows],
                "thickness": 1,
            },
            mode="markers",
            marker={"color": color, "symbol": symbol, "size": 9},
            text=[f"{format_seconds(row.seconds)} for {format_bytes(row.bytes)}" for row in rows],
            hovertemplate="%{text} measured",
            name=name,
            legendgroup=name,
        )
    seconds = [value for row in report.sums for value in (row.seconds_low, row.seconds_high)]
    set_log_axis(figure, "y", seconds, "seconds of a sum")
    ticks = thin_sizes(report.sizes)
    figure.update_xaxes(
        type="log", tickvals=ticks, ticktext=[format_bytes(size) for size in ticks], title_text="size of the tensor"
    )
    return apply_theme(figure, SUMS_HEIGHT_PIXELS)


def add_closed_form_line(figure: go.Figure, rows: Sequence[SumTiming], color: str) -> None:
    """Draw the closed form of one algorithm through its sizes; nothing where it could not be fitted."""
    points = [(row.bytes, row.closed_form_seconds) for row in rows if row.closed_form_seconds]
    if not points:
        return
    known_sizes, known_seconds = zip(*points, strict=True)
    between = np.geomspace(known_sizes[0], known_sizes[-1], LINE_POINTS)[1:-1]
    sizes = np.union1d(known_sizes, between)  # a form is a line, or nearly, which logarithmic axes bend
    seconds = np.interp(sizes, known_sizes, known_seconds)
    figure.add_scatter(
        x=sizes,
        y=seconds,
        mode="lines",
        line={"color": color, "dash": "dot"},
        text=[format_seconds(value) for value in seconds],
        hovertemplate="%{text} by its closed form",
        name=rows[0].algorithm,
        legendgroup=rows[0].algorithm,
        showlegend=False,
    )


def thin_sizes(sizes: Sequence[int]) -> list[int]:
    """Return as many of the sizes as have room for a label, with both ends."""
    step = -(-len(sizes) // MAX_SIZE_TICKS)
    return [*sizes[:-1:step], sizes[-1]]


def build_sums_panel(report: LinkReport) -> Panel:
    """Build the panel of the seconds of sums."""
    return Panel(
        name="sums",
        figure=sum_seconds_figure(report),
        caption=(
            "Time of a sum over the size of the tensor by algorithm: measured marks, dotted lines of the closed forms."
        ),
        reading=READING_OF_SUMS,
        data_table=sums_table(report),
    )


def sums_table(report: LinkReport) -> Table:
    """Return the table of all sums: seconds, spread and closed form."""
    rows: list[list[TableCell]] = [
        [
            row.algorithm,
            NumberCell(row.bytes, format_bytes(row.bytes)),
            NumberCell(row.seconds, format_seconds(row.seconds)),
            f"{format_seconds(row.seconds_low)} to {format_seconds(row.seconds_high)}",
            NumberCell(row.closed_form_seconds, format_seconds(row.closed_form_seconds)),
        ]
        for row in report.sums
    ]
    return Table(name="sum-times", columns=["algorithm", "size", "median", "80 % of sums", "closed form"], rows=rows)


def links_table(links: Sequence[LinkTiming]) -> Table:
    """Return the table of the levels of the network: delay and rate of the slowest link of each."""
    rows: list[list[TableCell]] = [
        [
            link.level,
            link.pairs,
            NumberCell(link.delay_seconds, format_seconds(link.delay_seconds)),
            NumberCell(link.bytes_a_second, format_bit_rate(link.bytes_a_second)),
        ]
        for link in links
    ]
    return Table(name="levels", columns=["level", "pairs timed", "delay", "rate"], rows=rows)


def ranges_table(report: LinkReport) -> Table:
    """Return the table of the sizes at which each algorithm is the fastest, and what it gains over the backend."""
    rows: list[list[TableCell]] = [
        [
            NumberCell(part.start_bytes, format_bytes(part.start_bytes)),
            NumberCell(part.stop_bytes, format_bytes(part.stop_bytes)),
            part.algorithm,
            ", ".join(part.similar) or "none",
            *(backend_cell(report, part, size) for size in (part.start_bytes, part.stop_bytes)),
        ]
        for part in find_fastest_ranges(list_sum_timings(report))
    ]
    columns = ["from", "up to", "fastest", "within 5 % of it", "backend takes at the lower end", "at the upper end"]
    return Table(name="fastest", columns=columns, rows=rows)


def backend_cell(report: LinkReport, part: FastestRange, size: int) -> NumberCell:
    """Return how many times as long the backend's own sum of a size takes as the fastest algorithm."""
    ratio = backend_ratio(report, part, size)
    return NumberCell(ratio, f"{format_significant(ratio)} x")


def backend_ratio(report: LinkReport, part: FastestRange, size: int) -> float:
    """Return the seconds of the backend's own sum of a size over those of the fastest algorithm, 1 at the least.

    A range ends at the first size that was compared after a crossing, at which another algorithm is faster.
    """
    timings = list_sum_timings(report)
    seconds, fastest_seconds = (estimate_sum_seconds(size, name, timings) for name in ("backend", part.algorithm))
    return max(1.0, seconds / fastest_seconds)


def bytes_table(report: LinkReport) -> Table:
    """Return the table of rounds, and of the bytes that leave a worker by schedule and by the kernel's counters."""
    rows: list[list[TableCell]] = [
        [
            row.algorithm,
            NumberCell(row.bytes, format_bytes(row.bytes)),
            row.rounds,
            round(row.sent_bytes),
            None if row.counted_bytes is None else round(row.counted_bytes),
            counted_share_cell(row),
        ]
        for row in report.sums
    ]
    columns = ["algorithm", "size", "rounds", "bytes by schedule", "bytes counted", "counted over schedule"]
    return Table(name="bytes", columns=columns, rows=rows)


def counted_share_cell(row: SumTiming) -> NumberCell:
    """Return by how much the counted bytes exceed those of the schedule; a dash where they were not counted."""
    if row.counted_bytes is None or not row.sent_bytes:
        return NumberCell(None, "-")
    excess = row.counted_bytes / row.sent_bytes - 1
    return NumberCell(excess, f"{'+' * (excess >= 0)}{format_percent(excess)}")
