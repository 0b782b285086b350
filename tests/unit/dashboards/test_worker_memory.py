"""The panel of a worker's memory shows predicted parts hollow, measured peaks filled, and the limit."""

import json

import pytest

from dashboards.experiments import Sweep, load_experiment
from dashboards.page import render_html
from dashboards.panels.sharding.worker_memory import MEMORY_PART_COLORS, build_memory_panel, worker_memory_figure
from dashboards.reports import tradeoff_page
from equipoise.planning.sharding.memory_report import MEMORY_FILE, MemoryReport
from tests.support.memory_reports import LIMIT_BYTES, build_memory_report
from tests.support.plan_documents import build_document
from tests.support.sweep_folders import write_sweep_folder

REPORT = build_memory_report()


def test_parts_are_hollow_bars_that_add_up():
    figure = worker_memory_figure(REPORT)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == [*MEMORY_PART_COLORS] * 2 and figure.layout.barmode == "stack"
    assert all(bar.marker.color == "rgba(0,0,0,0)" for bar in bars)
    assert [bar.marker.line.color for bar in bars[:5]] == list(MEMORY_PART_COLORS.values())
    total = [sum(bar.y[index] for bar in bars[:5]) for index in range(4)]
    assert total == pytest.approx([row.total / 1e9 for row in REPORT.ways[0].rows])
    assert list(bars[0].x) == ["4", "8", "16", "32"]


def test_measured_peaks_are_filled_marks_where_there_are_some():
    (marks,) = [trace for trace in worker_memory_figure(REPORT).data if trace.type == "scatter"]
    assert marks.name == "measured" and not marks.marker.symbol.endswith("open")
    assert list(marks.x) == ["4", "8"] and list(marks.y) == pytest.approx([1.784, 1.868])


def test_limit_crosses_each_row():
    figure = worker_memory_figure(REPORT)
    lines = [shape for shape in figure.layout.shapes if shape.y0 == shape.y1]
    assert [line.y0 for line in lines] == [LIMIT_BYTES / 1e9] * 2


def test_table_says_what_fits():
    table = build_memory_panel(REPORT).data_table
    assert [row[0] for row in table.rows] == ["the whole model"] * 4 + ["full"] * 4
    assert [row[-1] for row in table.rows] == ["yes", "yes", "no", "no", "yes", "yes", "yes", "yes"]
    assert [row[-2] is None for row in table.rows] == [False, False, *[True] * 6]


def test_page_of_a_plan_has_the_panel_if_there_is_a_limit(tmp_path):
    folder = write_sweep_folder(tmp_path / "sweep", seeds=1)
    assert load_experiment(folder).content.memory is None
    (folder / MEMORY_FILE).write_text(json.dumps(REPORT.to_json()))
    sweep = load_experiment(folder).content
    assert sweep.memory == REPORT
    assert 'id="memory"' in render_html(tradeoff_page(sweep, "name"))
    without = Sweep(plan=build_document(), step_times=None, examples_to_target=None)
    assert 'id="memory"' not in render_html(tradeoff_page(without, "name"))


def test_damaged_report_is_a_problem_of_the_sweep(tmp_path):
    folder = write_sweep_folder(tmp_path / "sweep", seeds=1)
    (folder / MEMORY_FILE).write_text(json.dumps(REPORT.to_json() | {"limit_bytes": -1}))
    assert "damaged" in load_experiment(folder).problem
    assert MemoryReport.from_json(REPORT.to_json()) == REPORT
