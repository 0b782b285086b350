"""The page of links says in words and tables what its figure shows."""

from dataclasses import replace

import numpy as np
import pytest

from dashboards.links_page import build_links_page, describe_fastest_ranges, describe_links
from dashboards.page import Note, NumberCell, render_html
from dashboards.panels.links import bytes_table, links_table, ranges_table, sum_seconds_figure, sums_table, thin_sizes
from equipoise.planning.exchanges.closed_forms import add_closed_forms
from tests.support.link_reports import build_link_report

REPORT = build_link_report()


def list_texts(table):
    return [[cell.text if isinstance(cell, NumberCell) else cell for cell in row] for row in table.rows]


def test_each_algorithm_has_marks_and_the_line_of_its_closed_form():
    figure = sum_seconds_figure(REPORT)
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    assert [*marks] == [*lines] == REPORT.algorithms
    for name in REPORT.algorithms:
        rows = [row for row in REPORT.sums if row.algorithm == name]
        assert list(marks[name].y) == [row.seconds for row in rows]
        forms = [row.closed_form_seconds for row in rows]
        assert (lines[name].y[0], lines[name].y[-1]) == pytest.approx((forms[0], forms[-1]))
        assert np.interp(rows[1].bytes, lines[name].x, lines[name].y) == pytest.approx(forms[1])
        assert lines[name].line.color == marks[name].marker.color
    assert len({(trace.marker.color, trace.marker.symbol) for trace in marks.values()}) == len(marks)
    assert list(figure.layout.xaxis.ticktext) == ["64 KiB", "1 MiB", "16 MiB"]


def test_fastest_algorithms_are_told_in_words_and_in_a_table():
    rows = list_texts(ranges_table(REPORT))
    assert [row[2] for row in rows] == ["direct", "sharded-root", "backend"]
    assert rows[0][0] == "64 KiB" and rows[-1][1] == "16 MiB" and rows[0][1] == rows[1][0]
    small, large, largest = describe_fastest_ranges(REPORT)
    assert small.startswith("from 64 KiB to ") and "`direct` is the fastest" in small
    assert large.endswith("times as long") and "the backend's own sum takes 1 to" in large
    assert largest.startswith("at 16 MiB the backend's own sum is the fastest")


def test_backend_that_is_fastest_is_not_compared_with_itself():
    rows = [row for row in REPORT.sums if row.algorithm in ("backend", "ring", "tree") and row.bytes > 1 << 20]
    assert describe_fastest_ranges(replace(REPORT, sums=tuple(rows))) == [
        "at 16 MiB the backend's own sum is the fastest; ring within 5 % of it"
    ]


def test_backend_is_never_faster_than_the_fastest():
    seconds = {"ring": (0.01, 0.2), "backend": (0.02, 0.1)}  # the lines cross between two sizes that are compared
    rows = [row for row in REPORT.sums if row.algorithm in seconds and row.bytes < 1 << 24]
    sums = tuple(replace(row, seconds=seconds[row.algorithm][row.bytes > 1 << 16]) for row in rows)
    ring, backend = describe_fastest_ranges(replace(REPORT, sums=sums))
    assert ring.endswith("the backend's own sum takes 1 to 2 times as long") and "backend's own" in backend


def test_levels_have_delay_and_rate():
    assert list_texts(links_table(REPORT.links)) == [
        ["within a node", 2, "40 us", "12 Gbit/s"],
        ["between nodes", 1, "5.7 ms", "192 Mbit/s"],
    ]
    inside, between = describe_links(REPORT.links)
    assert inside == (
        "within a node: 40 us for a small message, 12 Gbit/s for a large one, the slowest of 2 pairs of workers"
    )
    assert "pairs" not in between


def test_bytes_are_those_of_a_worker_by_schedule_and_by_the_kernel():
    rows = {(row[0], row[1]): row[2:] for row in list_texts(bytes_table(REPORT))}
    assert rows["ring", "1 MiB"] == [6, 1_572_864, 1_588_593, "+1.0%"]
    uncounted = replace(REPORT, sums=tuple(replace(row, counted_bytes=None) for row in REPORT.sums), interfaces=())
    assert all(row[4:] == [None, "-"] for row in list_texts(bytes_table(uncounted)))
    assert "No bytes were counted" in render_html(build_links_page(uncounted))


def test_page_has_every_section_and_what_is_counted():
    html = render_html(build_links_page(REPORT))
    assert "4 workers on 2 nodes" in html and "<code>lo</code> and <code>eth0</code>" in html
    assert "by gloo (backend) and by each" in html
    assert "Messages between workers on one node pass" in html
    other = replace(REPORT, interfaces=("eth0",))
    assert "Messages between workers on one node pass" not in render_html(build_links_page(other))
    assert all(f'id="{name}"' in html for name in ("fastest", "levels", "sums", "bytes", "sum-times"))
    assert len(list_texts(sums_table(REPORT))) == len(REPORT.sums)


def test_sizes_without_closed_forms_are_noted():
    rows = add_closed_forms([row for row in REPORT.sums if row.bytes == 1 << 20])
    page = build_links_page(replace(REPORT, sums=rows))
    assert page.sections[0].paragraphs[0].startswith("At 1 MiB `")
    [note] = [part for section in page.sections for part in section.parts if isinstance(part, Note)]
    assert "8 times" in note.text
    assert {trace.mode for trace in sum_seconds_figure(replace(REPORT, sums=rows)).data} == {"markers"}


@pytest.mark.parametrize(
    ("count", "labelled"), [(1, [0]), (8, [*range(8)]), (9, [0, 2, 4, 6, 8]), (16, [*range(0, 15, 2), 15])]
)
def test_few_sizes_are_labelled(count, labelled):
    assert thin_sizes(range(count)) == labelled
