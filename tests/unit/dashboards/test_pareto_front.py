"""Plans are compared by time and cost, and by workers and batch size."""

import numpy as np
import pytest

from dashboards.panels.pareto_front import (
    build_deadline_slider,
    choose_heatmap_unit,
    pareto_figure,
    time_heatmap_figure,
)
from dashboards.theme import AMBER, BLUE, NEUTRAL_COLOR, ORANGE
from tests.support.plan_documents import build_document, build_option, build_step_times

FAST = build_option(workers=4, seconds=10.0, measured=False)
CHEAP = build_option(workers=1, seconds=30.0)
SLOW = build_option(workers=2, seconds=40.0)
DOCUMENT = build_document(front=(FAST, CHEAP), options=(FAST, CHEAP, SLOW), knee=FAST)


def test_every_plan_is_a_point_of_time_and_cost():
    figure = pareto_figure(DOCUMENT)
    plans, front, knee, chosen = figure.data
    assert (list(plans.x), list(plans.y)) == ([10, 30, 40], [40, 30, 80])
    assert list(plans.marker.symbol) == ["circle-open", "circle", "circle"]  # hollow: predicted
    assert list(plans.text) == ["4 workers x 16, lr 0.1", "1 worker x 16, lr 0.1", "2 workers x 16, lr 0.1"]
    assert (list(front.x), list(front.y)) == ([10, 30], [40, 30])
    assert list(front.text) == ["4 workers x 16, lr 0.1", "1 worker x 16, lr 0.1"]
    assert (list(knee.x), list(knee.y), list(chosen.x)) == ([10], [40], [])
    assert [trace.mode for trace in figure.data] == ["markers", "lines+markers", "markers", "markers"]


def test_points_are_told_apart_by_colour_and_marker():
    plans, front, knee, chosen = pareto_figure(DOCUMENT).data
    assert (plans.marker.color, front.line.color) == (NEUTRAL_COLOR, BLUE)
    assert (knee.marker.color, knee.marker.symbol) == (ORANGE, "diamond-open")
    assert (chosen.marker.color, chosen.marker.symbol) == (AMBER, "star")
    assert [trace.name for trace in (plans, front, knee, chosen)] == [
        "every plan",
        "the front",
        "knee of the front",
        "cheapest within the deadline",
    ]


def test_both_axes_are_logarithmic_with_ticks_around_the_plans():
    layout = pareto_figure(DOCUMENT).layout
    assert (layout.xaxis.type, layout.xaxis.title.text) == ("log", "seconds to the target")
    assert (layout.yaxis.type, layout.yaxis.title.text) == ("log", "cost, worker-seconds")
    assert max(layout.xaxis.tickvals) == 700 and min(layout.yaxis.tickvals) == 10
    assert 1.5 in [tick / 10 for tick in layout.yaxis.tickvals]  # from 30 to 80: more ticks


def test_front_without_knee_marks_none():
    assert [trace.name for trace in pareto_figure(build_document(front=(FAST,), options=(FAST,))).data] == [
        "every plan",
        "the front",
        "cheapest within the deadline",
    ]


def test_slider_reaches_beyond_the_front_and_begins_at_its_knee():
    slider = build_deadline_slider(DOCUMENT)
    assert slider["plans"] == [
        {"words": "4 workers x 16, lr 0.1", "seconds": 10.0, "worker_seconds": 40.0},
        {"words": "1 worker x 16, lr 0.1", "seconds": 30.0, "worker_seconds": 30.0},
    ]
    assert (slider["low"], slider["high"], slider["value"]) == pytest.approx((9, 33, 10))
    assert slider["label"] == "deadline"
    assert slider["mark"] == 3


def test_slider_without_knee_begins_where_every_plan_is_in_time():
    document = build_document(front=(FAST, CHEAP), options=(FAST, CHEAP))
    assert build_deadline_slider(document)["value"] == 30
    assert build_deadline_slider(document)["mark"] == 2


def test_front_of_one_plan_has_no_slider():
    assert build_deadline_slider(build_document(front=(FAST,))) is None


def test_cells_are_the_times_of_each_number_of_workers_and_batch():
    options = (
        build_option(workers=4, batch=1024, seconds=10.0),
        build_option(workers=1, batch=1024, seconds=1000.0),
        build_option(workers=1, batch=16, seconds=100.0),
    )
    figure = time_heatmap_figure(build_document(options=options))
    (heatmap,) = figure.data
    assert (list(heatmap.x), list(heatmap.y)) == (["16", "1,024"], ["1", "4"])
    assert np.array(heatmap.z, float).tolist()[0] == pytest.approx([2, 3])
    assert heatmap.z[1][1] == pytest.approx(1) and np.isnan(heatmap.z[1][0])
    assert [list(row) for row in heatmap.text] == [["100", "1,000"], ["", "10"]]  # all in the unit of the shortest
    assert choose_heatmap_unit(build_document(options=options)) == (1.0, "s")
    assert "%{text} s" in heatmap.hovertemplate
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("category", "category")
    assert figure.layout.xaxis.title.text == "batch size per worker, examples"
    assert figure.layout.yaxis.title.text == "workers"
    assert not heatmap.showscale  # the cells hold their times


def test_fast_cells_are_blue():
    (heatmap,) = time_heatmap_figure(DOCUMENT).data
    assert [end for end, _ in heatmap.colorscale] == [0, 1]
    red, blue = (int(heatmap.colorscale[0][1][start : start + 2], 16) for start in (1, 5))
    assert blue > red


def test_cell_of_several_shapes_is_that_of_the_fewest_nodes():
    options = (build_option(nodes=2, seconds=20.0), build_option(nodes=1, seconds=10.0))
    (heatmap,) = time_heatmap_figure(build_document(options=options)).data
    assert list(heatmap.text[0]) == ["10"]


def test_heatmap_grows_with_its_rows():
    options = [build_option(workers=workers) for workers in (1, 2, 4)]
    heights = [time_heatmap_figure(build_document(options=tuple(options[:rows]))).layout.height for rows in (1, 2, 3)]
    assert heights[2] - heights[1] == heights[1] - heights[0] > 20


def build_device_options(dollars=True):
    """Return two settings of each of two devices, with a cost in dollars for the second device at least."""
    times = {"a10": 20.0, "h100": 10.0}
    return tuple(
        build_option(workers=workers, seconds=seconds / workers**0.5, device=device, dollars=price)
        for device, seconds in times.items()
        for workers in (1, 2)
        for price in [seconds * workers**0.5 * (device == "h100") + 1 if dollars or device == "h100" else None]
    )


def test_devices_have_marks_of_their_own_and_one_front_in_dollars():
    options = build_device_options()
    figure = pareto_figure(build_document(front=options[2:], options=options, knee=options[2]))
    slow, fast, front, knee, _ = figure.data
    assert (slow.name, fast.name, front.name) == ("every plan, a10", "every plan, h100", "the front")
    assert slow.marker.color != fast.marker.color and slow.marker.symbol != fast.marker.symbol
    assert figure.layout.yaxis.title.text == "cost, dollars"
    assert list(front.y) == [option.dollars for option in options[2:]] and list(knee.y) == [options[2].dollars]
    assert list(front.text) == ["1 worker x 16, lr 0.1, on h100", "2 workers x 16, lr 0.1, on h100"]
    slider = build_deadline_slider(build_document(front=options[2:], options=options))
    assert [plan["dollars"] for plan in slider["plans"]] == list(front.y)


def test_fronts_of_devices_without_prices_are_not_joined():
    options = build_device_options(dollars=False)
    document = build_document(front=options, options=options)
    figure = pareto_figure(document)
    assert [trace.name for trace in figure.data[2:4]] == ["the front, a10", "the front, h100"]
    assert figure.layout.yaxis.title.text == "cost, worker-seconds"
    assert build_deadline_slider(document) is None


def test_heat_map_is_of_the_device_of_the_plan():
    options = build_device_options()
    system = build_step_times(device="h100")
    figure = time_heatmap_figure(build_document(front=options, options=options, system=system))
    assert figure.data[0].z.ravel() == pytest.approx(np.log10([option.seconds.value for option in options[2:]]))
