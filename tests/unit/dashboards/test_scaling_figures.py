"""The figures of scaling show speed-ups over the fewest workers and the parts of a step's time."""

import pandas as pd
import pytest

from dashboards.experiments import Sweep
from dashboards.panels.scaling import (
    add_speedups,
    batches_to_draw,
    build_scaling_panels,
    describe_bottleneck,
    measured_speedups,
    predicted_speedups,
    speedup_figure,
    speedup_table,
    step_time_breakdown,
    step_time_breakdown_figure,
)
from dashboards.reports import scaling_page
from dashboards.theme import GREEN, NEUTRAL_COLOR, ORANGE, SERIES_COLORS, SKY
from tests.support.plan_documents import build_document, build_plan, build_step_prediction, build_step_times

COLUMNS = ["nodes", "workers", "batch", "seconds"]
STEP_TIMES = pd.DataFrame(
    [(1, 1, 10, 0.1), (1, 1, 10, 0.3), (1, 1, 10, 0.2), (1, 2, 10, 0.25), (1, 4, 1000, 1.0)], columns=COLUMNS
)
DOCUMENT = build_document(
    system=build_step_times(
        build_step_prediction(1, 10, 0.2),
        build_step_prediction(2, 10, 0.25),
        build_step_prediction(2, 10, 0.5, nodes=2, measured=False),
        build_step_prediction(8, 10, 0.4, nodes=2, measured=False),
    )
)


def build_part_times():
    """Build step times of two cluster shapes, with the seconds of their parts."""
    return pd.DataFrame(
        [
            *((1, 2, 1000, 0.5, 0.1, 0.05), (1, 2, 20, 0.4, 0.1, 0.05), (1, 2, 20, 0.2, 0.0, 0.01)),
            *((1, 2, 20, 0.3, "", 0.02), (2, 4, 20, 0.1, 0.2, 0.3)),
        ],
        columns=[*COLUMNS, "data_seconds", "exchange_seconds"],
    )


def scaling_page_of(document, step_times=None):
    return scaling_page(Sweep(plan=document, step_times=step_times, examples_to_target=None), "name")


def test_speedup_is_over_the_fewest_workers_of_the_same_batch():
    table = add_speedups(
        pd.DataFrame([(1, 4, 10, 0.2), (1, 2, 10, 0.1), (1, 3, 20, 0.5)], columns=COLUMNS)
    ).sort_values(["batch", "workers"])
    assert table.rate.tolist() == pytest.approx([200, 200, 120])  # examples per second
    assert table.speedup.tolist() == pytest.approx([2, 2, 3])  # two workers count as twice as fast as one


def test_measured_speedups_are_those_of_medians():
    table = measured_speedups(STEP_TIMES)
    assert table.seconds.tolist() == pytest.approx([0.2, 0.25, 1.0])
    assert table.speedup.tolist() == pytest.approx([1, 1.6, 4])
    assert table.measured.all()


def test_speedups_are_drawn_with_the_ideal():
    figure = speedup_figure(STEP_TIMES, DOCUMENT)
    ideal, predicted, measured, *_ = figure.data
    assert (list(ideal.x), list(ideal.y)) == ([1, 8], [1, 8])
    assert (ideal.name, ideal.line.dash, ideal.line.color, ideal.mode) == ("ideal", "dash", NEUTRAL_COLOR, "lines")
    assert list(predicted.x) == [1, 2, 8]
    assert list(predicted.y) == pytest.approx([1, 1.6, 4])  # two workers: on the fewest nodes
    assert (predicted.line.dash, predicted.marker.symbol, predicted.mode) == ("dot", "circle-open", "lines+markers")
    assert list(measured.x) == [1, 2] and list(measured.y) == pytest.approx([1, 1.6])
    assert (measured.mode, measured.marker.symbol) == ("markers", "circle")
    assert predicted.line.color == measured.marker.color == SERIES_COLORS[0]
    assert predicted.name == measured.name == predicted.legendgroup == measured.legendgroup == "10 per worker"
    assert predicted.showlegend is None and not measured.showlegend
    assert "predicted" in predicted.hovertemplate and "measured" in measured.hovertemplate


def test_each_batch_size_has_a_colour_and_marker():
    *_, predicted, measured = speedup_figure(STEP_TIMES, DOCUMENT).data
    assert predicted.name == measured.name == "1,000 per worker"
    assert predicted.line.color == measured.marker.color == SERIES_COLORS[1]
    assert (predicted.marker.symbol, measured.marker.symbol) == ("square-open", "square")
    assert (list(predicted.x), list(measured.x)) == ([], [4])


def test_points_without_a_line_have_an_entry_in_the_legend():
    _, *without_plan = speedup_figure(STEP_TIMES, build_document()).data
    shown = [trace.name for trace in without_plan if len(trace.x) and trace.showlegend is not False]
    assert shown == ["10 per worker", "1,000 per worker"]


def test_plan_without_step_times_draws_its_measured_settings():
    _, predicted, measured = speedup_figure(None, DOCUMENT).data
    assert list(measured.x) == [1, 2] and list(predicted.x) == [1, 2, 8]
    assert len(speedup_figure(None, build_document()).data) == 1  # the ideal alone
    assert list(speedup_figure(None, build_document()).data[0].x) == [1, 1]


def test_axes_of_the_speedup():
    layout = speedup_figure(STEP_TIMES, DOCUMENT).layout
    assert list(layout.xaxis.tickvals) == [1, 2, 4, 8] and list(layout.xaxis.ticktext) == ["1", "2", "4", "8"]
    assert (layout.xaxis.type, layout.xaxis.title.text) == ("log", "workers")
    assert (layout.yaxis.type, layout.yaxis.title.text) == ("log", "speed-up")
    assert (min(layout.yaxis.tickvals), max(layout.yaxis.tickvals)) == (1, 50)


def test_axis_of_the_speedup_reaches_below_one_where_more_workers_are_slower():
    step_times = pd.DataFrame([(1, 1, 10, 0.1), (1, 2, 10, 0.5)], columns=COLUMNS)
    assert min(speedup_figure(step_times, build_document()).layout.yaxis.tickvals) == pytest.approx(0.1)


def test_axis_of_the_speedup_begins_at_one_where_fewer_workers_were_not_measured():
    step_times = pd.DataFrame([(1, 64, 10, 0.1), (1, 128, 10, 0.1)], columns=COLUMNS)
    assert min(speedup_figure(step_times, build_document()).layout.yaxis.tickvals) == 1


def test_of_many_batches_that_of_the_plan_has_a_line():
    batches = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert batches_to_draw(batches[:4], None) == batches[:4]
    assert batches_to_draw(batches, None) == [1, 16, 256]
    assert batches_to_draw(batches, build_plan(batch=32)) == [1, 16, 32, 256]
    assert batches_to_draw(batches, build_plan(batch=48)) == [1, 16, 256]  # never predicted or measured


def test_parts_are_medians_in_milliseconds():
    row = step_time_breakdown(build_part_times()).set_index(["workers", "batch"]).loc[(2, 20)]
    assert row.seconds == pytest.approx(0.3)
    assert (row.data, row.exchange) == pytest.approx((0, 20))
    assert row.compute == pytest.approx(280)


def test_parts_that_exceed_the_step_leave_no_time_for_computing():
    row = step_time_breakdown(build_part_times()).set_index(["workers", "batch"]).loc[(4, 20)]
    assert (row.compute, row.data, row.exchange) == pytest.approx((0, 200, 300))


@pytest.mark.parametrize("column", ["data_seconds", "exchange_seconds"])
def test_part_that_was_not_measured_is_zero(column):
    row = step_time_breakdown(build_part_times().drop(columns=column)).set_index(["workers", "batch"]).loc[(2, 1000)]
    assert row[column.removesuffix("_seconds")] == 0
    assert row.compute + row.data + row.exchange == pytest.approx(500)


def test_parts_are_stacked_in_a_panel_for_each_cluster_shape():
    figure = step_time_breakdown_figure(build_part_times())
    compute, exchange, data, *second_shape = figure.data
    assert [trace.name for trace in figure.data] == ["compute", "exchange", "data"] * 2
    assert [trace.marker.color for trace in figure.data] == [SKY, ORANGE, GREEN] * 2
    assert list(compute.x) == list(exchange.x) == list(data.x) == ["20", "1,000"]
    assert list(compute.y) == pytest.approx([280, 350])
    assert list(second_shape[1].y) == pytest.approx([300])
    assert [trace.showlegend for trace in figure.data] == [True] * 3 + [False] * 3
    assert all(trace.legendgroup == trace.name for trace in figure.data)
    assert {trace.yaxis for trace in second_shape} == {"y2"}


def test_axes_of_the_parts():
    layout = step_time_breakdown_figure(build_part_times()).layout
    assert list(layout.xaxis.categoryarray) == ["20", "1,000"] and layout.xaxis.type == "category"
    assert layout.xaxis.categoryorder == "array"
    assert layout.xaxis2.title.text == "batch size per worker, examples" and layout.xaxis.title.text is None
    titles = [layout.yaxis.title.text, layout.yaxis2.title.text]
    assert titles == ["2 workers<br>ms per step", "4 workers on 2 nodes<br>ms per step"] and not layout.annotations
    assert layout.barmode == "stack"
    assert layout.xaxis.matches == "x2"


def test_panels_of_the_parts_do_not_touch_and_share_the_height():
    one_shape = step_time_breakdown_figure(build_part_times().query("workers == 2")).layout
    two_shapes = step_time_breakdown_figure(build_part_times()).layout
    assert two_shapes.height > one_shape.height + 100
    assert two_shapes.yaxis.domain[0] - two_shapes.yaxis2.domain[1] == pytest.approx(0.075)


@pytest.mark.parametrize(
    ("binding", "words"), [("compute", "faster workers"), ("exchange", "faster network"), ("noise", "critical batch")]
)
def test_bottleneck_is_explained(binding, words):
    (sentence,) = describe_bottleneck(build_document(plan=build_plan(nodes=2, workers=4, binding=binding)))
    assert sentence.startswith(f"The plan (4 workers on 2 nodes x 16) is bound by {binding}: ")
    assert words in sentence


def test_document_without_plan_has_no_bottleneck():
    assert describe_bottleneck(build_document()) == []
    page = scaling_page_of(build_document())
    assert page.sections[0].paragraphs == ["There is no plan yet, so the bottleneck is unknown."]


def test_speedups_are_listed_as_predicted_and_measured():
    table = speedup_table(STEP_TIMES, DOCUMENT)
    assert table.columns == ["which", "nodes", "workers", "batch", "examples/s", "speed-up"]
    assert table.rows[0] == ["predicted", 1, 1, 10, 50, 1]
    assert [row[0] for row in table.rows] == ["predicted"] * 4 + ["measured"] * 3
    assert table.rows[-1] == ["measured", 1, 4, 1000, 4000, 4]
    assert len(speedup_table(None, DOCUMENT).rows) == 4
    assert len(predicted_speedups(build_document())) == 0


def test_panels_are_those_for_which_there_is_data():
    def names(document, step_times=None):
        return [panel.name for panel in build_scaling_panels(document, step_times)]

    assert names(build_document()) == []
    assert names(DOCUMENT) == ["speedup"]
    assert names(build_document(), STEP_TIMES) == ["speedup"]
    assert names(DOCUMENT, build_part_times()) == ["speedup", "parts"]
    assert names(DOCUMENT, build_part_times().drop(columns="data_seconds")) == ["speedup", "parts"]


def test_page_has_a_section_for_each_panel():
    page = scaling_page_of(DOCUMENT, build_part_times())
    assert [section.title for section in page.sections] == ["Bottleneck", "Speed-up", "Time of a step"]
    speedup, parts = page.iter_panels()
    assert "predicted" in speedup.reading and "overlaps" in parts.reading and speedup.data_table.rows
    assert "gradient exchange" in parts.caption
    assert (page.title, [link.href for link in page.links]) == ("Scaling: name", ["curve.html"])
