"""Panel of the best way of exchange over the rate and the delay of the slowest links."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.panels.exchanges.area_names import Cell, find_roomiest_cell, is_hidden
from dashboards.panels.exchanges.time_estimates import (
    find_cell_edges,
    label_exchange,
    list_best_options,
    place_on_log_axis,
)
from dashboards.theme import (
    NEUTRAL_COLOR,
    SERIES_COLORS,
    apply_theme,
    format_seconds,
    format_significant,
    series_color,
    series_symbol,
    set_log_axis,
)
from equipoise.formatting import format_bit_rate
from equipoise.planning.document import PlanDocument
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap

MAP_HEIGHT_PIXELS = 480
CELL_OPACITY = 0.38  # of the colour of a cell: marks and names on it stay readable on a light and a dark page
MAX_MARKS = 12  # of an option along an axis, which tell its area without its colour
MEGABIT, MILLISECOND = 1e6, 1e-3
OWN_MARKER = {"color": "#ffffff", "line": {"color": "#1c2126", "width": 2}}  # seen on both pages and on every colour
READING_OF_MAP = (
    "The rate of the slowest links runs to the right and the delay of a message on them upwards, both logarithmic."
    " Each cell is a network on which this workload could train: its colour and its mark are those of the way of"
    " exchange that reaches the target first there, each at its own best setting. Exact sums in every step are the best"
    " up to the line. The circle is the network that was measured; from it, the diamonds are the nearest rate and delay"
    " at which the answer changes."
)

Position = tuple[float, float]  # Mbit/s and ms


class NetworkMarks(NamedTuple):
    """Networks on the map that are marked, under one name."""

    name: str
    symbol: str
    positions: Sequence[Position]
    texts: Sequence[str]


class MapGrid:
    """Positions of the cells of a map on its axes, in Mbit/s and ms."""

    def __init__(self, exchange_map: ExchangeMap) -> None:
        self.rates = [rate / MEGABIT for rate in exchange_map.bits_per_second]
        self.delays = place_on_log_axis([delay / MILLISECOND for delay in exchange_map.delay_seconds])
        self.rate_edges, self.delay_edges = find_cell_edges(self.rates), find_cell_edges(self.delays)

    def place_delay(self, seconds: float) -> float:
        """Return the position of a delay; that of the lowest cell for no delay at all."""
        return seconds / MILLISECOND if seconds > 0 else self.delays[0]


def exchange_map_figure(document: PlanDocument, exchange_map: ExchangeMap) -> go.Figure:
    """Draw the best way of exchange at each rate and delay, where the answer changes, and the measured network."""
    grid, options = MapGrid(exchange_map), list_best_options(exchange_map)
    figure = go.Figure(build_cells(exchange_map, grid, options))
    networks = list_own_networks(document, exchange_map, grid)
    names = place_names(exchange_map, grid, options, [position for trace in networks for position in trace.positions])
    for index in options:
        positions = list_marks(exchange_map, grid, index, names.get(index))
        figure.add_scatter(
            x=[x for x, _ in positions],
            y=[y for _, y in positions],
            mode="markers",
            marker={"color": color_option(index), "symbol": symbol_option(index), "size": 7},
            hoverinfo="skip",
            name=label_exchange(exchange_map.options[index]),
        )
    if corners := [*find_border(exchange_map, grid)]:
        x, y = zip(*corners, strict=True)
        style = {"color": NEUTRAL_COLOR, "width": 3}
        figure.add_scatter(x=x, y=y, mode="lines", line=style, hoverinfo="skip", name="edge of exact sums")
    for network in networks:
        add_network(figure, network)
    for index, (row, column) in names.items():
        figure.add_annotation(
            x=math.log10(grid.rates[column]),
            y=math.log10(grid.delays[row]),
            text=label_exchange(exchange_map.options[index]),
            showarrow=False,
        )
    set_log_axis(figure, "x", grid.rate_edges, "rate of the slowest links, Mbit/s")
    set_log_axis(figure, "y", grid.delay_edges, "delay of a message, ms")
    figure.update_xaxes(showgrid=False).update_yaxes(showgrid=False)
    return apply_theme(figure, MAP_HEIGHT_PIXELS)


def color_option(index: int) -> str:
    """Return the colour of an option by its position: grey for exact sums, which are the first."""
    return NEUTRAL_COLOR if index == 0 else series_color(index - 1)


def symbol_option(index: int) -> str:
    """Return the symbol of an option by its position: a hollow circle for exact sums, which are the first."""
    # each round through the colours shifts the symbols, so that no two options share both
    return "circle-open" if index == 0 else series_symbol(index + (index - 1) // len(SERIES_COLORS))


def build_cells(exchange_map: ExchangeMap, grid: MapGrid, options: list[int]) -> go.Heatmap:
    """Build the coloured cells with their texts."""
    count = len(options)
    position = {index: place for place, index in enumerate(options)}
    scale = [
        (edge / count, color_option(index)) for index in options for edge in (position[index], position[index] + 1)
    ]
    return go.Heatmap(
        x=grid.rate_edges,
        y=grid.delay_edges,
        z=[[position[index] + 0.5 for index in row] for row in exchange_map.best],
        zmin=0,
        zmax=count,
        colorscale=scale,
        opacity=CELL_OPACITY,
        showscale=False,
        text=[
            [describe_cell(exchange_map, row, column) for column in range(len(grid.rates))]
            for row in range(len(grid.delays))
        ],
        hovertemplate="%{text}<extra></extra>",
    )


def describe_cell(exchange_map: ExchangeMap, row: int, column: int) -> str:
    """Return the text of a cell: its network, and the seconds to the target with exact sums and with the best way."""
    rate, delay = exchange_map.bits_per_second[column], exchange_map.delay_seconds[row]
    index, speedup = exchange_map.best[row][column], exchange_map.speedup[row][column]
    exact = exchange_map.exact_seconds[row][column]
    network = f"{format_bit_rate(rate / 8)}, {format_seconds(delay) if delay else 'no delay'}"
    lines = [network, f"exact sums: {format_seconds(exact)} to the target"]
    if index:
        name, seconds = label_exchange(exchange_map.options[index]), format_seconds(exact / speedup)
        lines.append(f"{name}: {seconds}, {format_significant(speedup)} times sooner")
    else:
        lines.append("no other way of exchange is sooner")
    return "<br>".join(lines)


def list_marks(exchange_map: ExchangeMap, grid: MapGrid, index: int, name: Cell | None) -> list[Position]:
    """Return the positions of the marks of an option: in its cells, thinned where cells are many, not at its name."""
    every_row, every_column = (-(-len(axis) // MAX_MARKS) for axis in (grid.delays, grid.rates))
    cells = [
        (row, column)
        for row, best in enumerate(exchange_map.best)
        for column, found in enumerate(best)
        if found == index and not (name and is_hidden((row, column), name, len(grid.rates)))
    ]
    thinned = [cell for cell in cells if cell[0] % every_row == 0 and cell[1] % every_column == 0] or cells[:1]
    return [(grid.rates[column], grid.delays[row]) for row, column in thinned]


def find_border(exchange_map: ExchangeMap, grid: MapGrid) -> Iterator[tuple[float | None, float | None]]:
    """Yield the line between cells where exact sums are the best and all others, in pieces that None separates."""
    exact = [[index == 0 for index in row] for row in exchange_map.best]
    x, y = grid.rate_edges, grid.delay_edges
    for row, cells in enumerate(exact):
        for column, (left, right) in enumerate(pairwise(cells), 1):
            if left != right:
                yield from ((x[column], y[row]), (x[column], y[row + 1]), (None, None))
    for row, (below, above) in enumerate(pairwise(exact), 1):
        for column, (low, high) in enumerate(zip(below, above, strict=True)):
            if low != high:
                yield from ((x[column], y[row]), (x[column + 1], y[row]), (None, None))


def list_own_networks(document: PlanDocument, exchange_map: ExchangeMap, grid: MapGrid) -> list[NetworkMarks]:
    """Return the measured network, and the nearest ones at which the answer changes; nothing where it is unknown."""
    rate, delay = exchange_map.own_bits_per_second, exchange_map.own_delay_seconds
    if rate is None or delay is None:
        return []
    own = rate / MEGABIT, grid.place_delay(delay)
    text = f"measured: {format_bit_rate(rate / 8)}, {format_seconds(delay) if delay else 'no delay'}"
    changes: list[tuple[Position, str]] = []
    switches = document.switches_at
    if switches and switches.bits_per_second:
        text_of_rate = f"the answer changes at {format_bit_rate(switches.bits_per_second / 8)}"
        changes.append(((switches.bits_per_second / MEGABIT, own[1]), text_of_rate))
    if switches and switches.delay_seconds:
        text_of_delay = f"the answer changes at {format_seconds(switches.delay_seconds)}"
        changes.append(((own[0], grid.place_delay(switches.delay_seconds)), text_of_delay))
    marks = [NetworkMarks("your links", "circle", [own], [text])]
    if changes:
        positions, texts = zip(*changes, strict=True)
        marks.append(NetworkMarks("the answer changes", "diamond", positions, texts))
    return marks


def add_network(figure: go.Figure, marks: NetworkMarks) -> None:
    """Draw networks that matter to the reader, above all cells and marks."""
    x, y = zip(*marks.positions, strict=True)
    figure.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker={**OWN_MARKER, "symbol": marks.symbol, "size": 13},
        text=marks.texts,
        hovertemplate="%{text}<extra></extra>",
        name=marks.name,
    )


def place_names(
    exchange_map: ExchangeMap, grid: MapGrid, options: list[int], taken: Sequence[Position]
) -> dict[int, Cell]:
    """Return the cell for the name of each option whose area has room for it on a phone."""
    cells = [find_nearest_cell(grid, *position) for position in taken]
    places = {}
    for index in options:
        area = [[found == index for found in row] for row in exchange_map.best]
        if cell := find_roomiest_cell(label_exchange(exchange_map.options[index]), area, cells):
            places[index] = cell
    return places


def find_nearest_cell(grid: MapGrid, rate: float, delay: float) -> Cell:
    """Return the row and the column of the cell nearest to a rate in Mbit/s and a delay in ms."""
    return find_nearest(grid.delays, delay), find_nearest(grid.rates, rate)


def find_nearest(positions: Sequence[float], value: float) -> int:
    """Return which of the positions on a logarithmic axis is the nearest to a value."""
    return min(range(len(positions)), key=lambda place: abs(math.log(positions[place] / value)))


def build_map_panel(document: PlanDocument) -> Panel | None:
    """Build the panel of the map of exchanges; None for a plan without one."""
    exchange_map = document.exchange_map
    if exchange_map is None:
        return None
    return Panel(
        name="exchange-map",
        figure=exchange_map_figure(document, exchange_map),
        caption="The way of exchange that reaches the target first, by rate and delay of the slowest links.",
        reading=READING_OF_MAP,
        data_table=map_table(exchange_map),
    )


def map_table(exchange_map: ExchangeMap) -> Table:
    """Return the table of the cells of a map: the network, the best way of exchange and its seconds."""
    rows: list[list[TableCell]] = []
    for row, delay in enumerate(exchange_map.delay_seconds):
        for column, rate in enumerate(exchange_map.bits_per_second):
            exact, speedup = exchange_map.exact_seconds[row][column], exchange_map.speedup[row][column]
            rows.append(
                [
                    NumberCell(rate, format_bit_rate(rate / 8)),
                    NumberCell(delay, format_seconds(delay) if delay else "0 ms"),
                    label_exchange(exchange_map.options[exchange_map.best[row][column]]),
                    NumberCell(exact, format_seconds(exact)),
                    NumberCell(exact / speedup, format_seconds(exact / speedup)),
                    NumberCell(speedup, f"{format_significant(speedup)} x"),
                ]
            )
    columns = ["rate", "delay", "best", "exact sums take", "the best takes", "sooner by"]
    return Table(name="exchange-map-cells", columns=columns, rows=rows)
