"""The timeline of a pipeline shows each pass of a step on its stage, and how long stages stand idle."""

from dataclasses import replace

import pytest

from dashboards.page import render_html
from dashboards.panels.sharding.pipeline_timeline import build_timeline_panels, measure_idle_shares, pipeline_figure
from dashboards.reports import run_page
from dashboards.theme import AMBER, SKY
from equipoise.config import TrainConfig
from equipoise.runs.pipeline_span import PipelineSpan
from equipoise.runs.record import Record
from tests.unit.dashboards.test_training_run import record

SPANS = tuple(
    PipelineSpan(stage=stage, kind=kind, micro=micro, start=start / 1000, end=end / 1000)
    for stage, kind, micro, start, end in [
        *((0, "forward", 0, 0, 1), (0, "forward", 1, 1, 2), (0, "wait", 0, 2, 4)),
        *((0, "backward", 0, 4, 6), (0, "wait", 1, 6, 7), (0, "backward", 1, 7, 9)),
        *((1, "wait", 0, -1, 1), (1, "forward", 0, 1, 2), (1, "backward", 0, 2, 4)),
        *((1, "forward", 1, 4, 5), (1, "backward", 1, 5, 7)),
    ]
)
"""one step of two equal stages with two micro-batches by 1F1B, in which a backward pass takes 2 ms"""


def piped_record() -> Record:
    """Return a run whose second lap has the spans of a step."""
    first, second, *others = record().laps
    config = TrainConfig(workload="digits", workers=2, sharding="pipeline:2").with_defaults()
    laps = [replace(first, pipeline_spans=SPANS[:1]), replace(second, pipeline_spans=SPANS), *others]
    return replace(record(), config=config, laps=laps)


def test_equal_stages_idle_for_the_closed_form():
    assert measure_idle_shares(SPANS) == pytest.approx([1 / 3, 1 / 3])  # (S - 1)/(M + S - 1)


def test_passes_lie_on_their_stage_in_milliseconds():
    forward, backward = pipeline_figure(SPANS).data
    assert (forward.name, forward.marker.color, backward.name, backward.marker.color) == (
        *("forward", SKY),
        *("backward", AMBER),
    )
    assert list(forward.y) == ["stage 1", "stage 1", "stage 2", "stage 2"]
    assert list(forward.base) == pytest.approx([0, 1, 1, 4]) and list(forward.x) == pytest.approx([1] * 4)
    assert list(backward.base) == pytest.approx([4, 7, 2, 5]) and list(backward.x) == pytest.approx([2] * 4)
    assert list(backward.text) == ["1", "2", "1", "2"]


def test_panel_is_of_the_last_lap_with_spans_and_lists_waits_too():
    (panel,) = build_timeline_panels(piped_record())
    assert "33%, 33%" in panel.caption and "33% or more" in panel.caption and "1F1B" in panel.caption
    assert len(panel.data_table.rows) == len(SPANS)
    assert [row[1] for row in panel.data_table.rows].count("wait") == 3
    assert 'id="pipeline"' in render_html(run_page(piped_record()))


def test_run_without_a_pipeline_has_no_timeline():
    assert build_timeline_panels(record()) == [] and 'id="pipeline"' not in render_html(run_page(record()))


def test_spans_come_back_from_the_record():
    assert Record.from_json(piped_record().to_json()).laps[1].pipeline_spans == SPANS
