"""The map of ways of exchange: its cells, areas, names, border, marks and table."""

import math
from dataclasses import replace
from itertools import product

import pytest

from dashboards.page import NumberCell
from dashboards.panels.exchanges.area_names import find_roomiest_cell
from dashboards.panels.exchanges.best_exchange_map import (
    MapGrid,
    color_option,
    exchange_map_figure,
    find_border,
    map_table,
    symbol_option,
)
from dashboards.panels.exchanges.time_estimates import (
    find_cell_edges,
    place_on_log_axis,
)
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, SwitchesAt
from tests.support.exchange_plans import (
    DELAYS,
    OPTIONS,
    OWN_DELAY,
    OWN_RATE,
    RATES,
    build_exchange_document,
    build_exchange_map,
    compute_target_seconds,
)

DOCUMENT = build_exchange_document()
SMALL_MAP = ExchangeMap(
    bits_per_second=(1e8, 1e9),
    delay_seconds=(0.0, 1e-3),
    options=("", "local:16"),
    best=((1, 0), (1, 1)),
    exact_seconds=((20.0, 5.0), (40.0, 30.0)),
    speedup=((4.0, 1.0), (8.0, 3.0)),
)


def list_texts(table):
    return [[cell.text if isinstance(cell, NumberCell) else cell for cell in row] for row in table.rows]


def read_traces(figure):
    return {trace.name: trace for trace in figure.data if trace.name}


def test_every_cell_of_the_map_has_the_best_option_and_its_times():
    cells = exchange_map_figure(DOCUMENT, DOCUMENT.exchange_map).data[0]
    for (row, delay), (column, rate) in product(enumerate(DELAYS), enumerate(RATES)):
        seconds = {name: compute_target_seconds(name, rate, delay) for name in OPTIONS}
        best = min(seconds, key=seconds.get)
        assert cells.z[row][column] == [*OPTIONS].index(best) + 0.5  # all of the options are the best somewhere
        text = cells.text[row][column]
        assert (f"<br>{best}: " in text) if best else ("no other" in text)
        assert cells.x[column] < rate / 1e6 < cells.x[column + 1] and cells.y[row] < delay * 1e3 < cells.y[row + 1]


def test_cell_says_seconds_of_exact_sums_and_of_the_best():
    cells = exchange_map_figure(replace(DOCUMENT, switches_at=None), SMALL_MAP).data[0]
    lines = [
        "100 Mbit/s, no delay",
        "exact sums: 20 s to the target",
        "local:16: 5 s, 4 times sooner",
    ]
    assert cells.text[0][0] == "<br>".join(lines)
    assert cells.text[0][1].endswith("no other way of exchange is sooner")


def test_options_differ_in_colour_and_in_mark_and_are_named_in_the_legend():
    traces = read_traces(exchange_map_figure(DOCUMENT, DOCUMENT.exchange_map))
    marks = [traces[name or "exact sums"].marker for name in OPTIONS]
    assert len({mark.color for mark in marks}) == len({mark.symbol for mark in marks}) == len(OPTIONS)


def test_no_two_of_many_options_share_colour_and_mark():
    looks = [(color_option(index), symbol_option(index)) for index in range(20)]
    assert len(set(looks)) == len(looks)


def test_option_that_is_nowhere_the_best_is_not_in_the_legend():
    names = ("", "tree", "local:16")
    one_way = replace(SMALL_MAP, options=names, best=((2, 0), (2, 2)))
    traces = read_traces(exchange_map_figure(build_exchange_document(switches_at=None), one_way))
    assert "tree" not in traces and {"exact sums", "local:16"} <= traces.keys()


def test_border_runs_around_the_cells_of_exact_sums():
    grid = MapGrid(SMALL_MAP)
    (_, middle, right), (bottom, centre, _) = grid.rate_edges, grid.delay_edges
    pieces = [*find_border(SMALL_MAP, grid)]
    gap = (None, None)
    assert pieces == [(middle, bottom), (middle, centre), gap, (middle, centre), (right, centre), gap]


def test_map_of_one_answer_has_no_border():
    same = replace(SMALL_MAP, best=((1, 1), (1, 1)))
    assert "edge of exact sums" not in read_traces(exchange_map_figure(DOCUMENT, same))


def test_own_links_and_changes_of_the_answer_are_marked():
    switches = SwitchesAt(bits_per_second=2.6e10, delay_seconds=2e-3)
    traces = read_traces(exchange_map_figure(build_exchange_document(switches_at=switches), DOCUMENT.exchange_map))
    own, changes = traces["your links"], traces["the answer changes"]
    assert (own.x[0], own.y[0]) == pytest.approx((OWN_RATE / 1e6, OWN_DELAY * 1e3))
    assert [*zip(changes.x, changes.y, strict=True)] == [(2.6e4, own.y[0]), (own.x[0], 2.0)]
    assert own.text == ("measured: 200 Mbit/s, 100 us",)


@pytest.mark.parametrize("unknown", ["own_bits_per_second", "own_delay_seconds"])
def test_links_that_were_not_measured_are_not_marked(unknown):
    figure = exchange_map_figure(DOCUMENT, build_exchange_map(**{unknown: None}))
    assert not {"your links", "the answer changes"} & read_traces(figure).keys()


def test_links_without_delay_are_marked_in_the_lowest_row():
    own = replace(SMALL_MAP, own_bits_per_second=1e8, own_delay_seconds=0.0)
    mark = read_traces(exchange_map_figure(DOCUMENT, own))["your links"]
    assert mark.y[0] == MapGrid(own).delays[0] > 0


def test_names_are_inside_of_their_areas_and_away_from_the_own_links():
    figure = exchange_map_figure(DOCUMENT, DOCUMENT.exchange_map)
    named = {annotation.text: annotation for annotation in figure.layout.annotations}
    assert "local:16" in named
    for name, annotation in named.items():
        rate, delay = 10**annotation.x * 1e6, 10**annotation.y / 1e3
        seconds = {option or "exact sums": compute_target_seconds(option, rate, delay) for option in OPTIONS}
        assert min(seconds, key=seconds.get) == name
        assert abs(math.log10(delay / OWN_DELAY)) > 0.3 or abs(math.log10(rate / OWN_RATE)) > 0.6


def test_name_needs_room_for_its_letters():
    area = [[False] * 6 + [True] * 4 for _ in range(5)]
    assert find_roomiest_cell("local:16", area) == (2, 7)
    assert find_roomiest_cell("local:16/bf16/two-level", area) is None
    assert find_roomiest_cell("local:16", area, taken=[(2, 7)]) in {(0, 7), (4, 7)}
    assert find_roomiest_cell("bf16", [[True] * 9], taken=[(0, 4)]) in {(0, 2), (0, 6)}


def test_table_of_the_map_has_a_row_for_each_cell():
    assert list_texts(map_table(SMALL_MAP)) == [
        ["100 Mbit/s", "0 ms", "local:16", "20 s", "5 s", "4 x"],
        ["1 Gbit/s", "0 ms", "exact sums", "5 s", "5 s", "1 x"],
        ["100 Mbit/s", "1 ms", "local:16", "40 s", "5 s", "8 x"],
        ["1 Gbit/s", "1 ms", "local:16", "30 s", "10 s", "3 x"],
    ]


@pytest.mark.parametrize(
    ("values", "placed"),
    [((0.0, 1.0, 10.0), [0.1, 1.0, 10.0]), ((0.0, 5.0), [0.5, 5.0]), ((0.0,), [1e-6]), ((2.0, 4.0), [2.0, 4.0])],
)
def test_zero_has_a_place_on_a_logarithmic_axis(values, placed):
    assert place_on_log_axis(values) == pytest.approx(placed)


def test_edges_lie_between_the_cells_and_as_far_outside():
    assert find_cell_edges([1, 4, 16]) == pytest.approx([0.5, 2, 8, 32])
    assert find_cell_edges([3]) == pytest.approx([1.5, 6])
