"""The figures of a trade-off show what was measured and predicted, each in its unit."""

from dataclasses import replace

import pandas as pd
import pytest

from dashboards.panels.learning_rates import trials_table
from dashboards.panels.tradeoff import (
    MAX_PLOT_LINES,
    build_tradeoff_panels,
    shapes_to_draw,
    tradeoff_figure,
)
from dashboards.panels.tradeoff_traces import EXAMPLE_UNIT, EXAMPLES_UNIT, FIT_COLOR, TARGET_UNIT
from dashboards.theme import AMBER, NEUTRAL_COLOR, SERIES_COLORS, translucent_color
from equipoise.planning.document import IntervalEstimate
from tests.support.demo_records import CONFIRMATION
from tests.support.plan_documents import (
    build_document,
    build_examples,
    build_option,
    build_plan,
    build_step_prediction,
    build_step_times,
)

STEP_TIMES = pd.DataFrame(
    [(1, 1, 10, 0.4), (1, 1, 10, 0.5), (1, 1, 10, 0.9), (1, 4, 25, 2.0)],
    columns=["nodes", "workers", "batch", "seconds"],
)
SYSTEM = build_step_times(
    *(build_step_prediction(1, 20, 0.8), build_step_prediction(1, 10, 0.6), build_step_prediction(2, 10, 0.7))
)
STATISTICAL = build_examples((10, 4000.0), (20, 5000.0))
OPTIONS = (
    build_option(workers=1, batch=20, seconds=50.0, measured=False),
    build_option(workers=1, batch=10, seconds=40.0),
)
PLAN = build_plan(workers=1, batch=10, seconds=40.0)
TRIALS = pd.DataFrame(
    [(10, 0.1, 3, 4100.0, 1), (10, 0.2, 4, 9000.0, 1), (20, 0.1, 5, 8000.0, 0), (20, 0.2, 6, 5000.0, 1)],
    columns=["global_batch", "lr", "seed", "examples", "reached"],
)


def find_traces(figure, unit, name):
    """Return the traces of a name in the row whose axis has a unit."""
    return [trace for trace in figure.data if trace.name == name and row_title(figure, trace.yaxis or "y") == unit]


def row_title(figure, axis):
    """Return the title of a vertical axis; None if the figure has no such row."""
    layout = figure.layout.to_plotly_json()
    return layout.get(axis.replace("y", "yaxis"), {}).get("title", {}).get("text")


def test_runs_that_were_made_with_a_plan_stand_where_they_ended():
    slow = replace(CONFIRMATION, seconds=9.5, inside=False)
    missed = replace(CONFIRMATION, seconds=None, inside=False, outcome="max examples", workers=8, nodes=2)
    document = replace(build_document(options=OPTIONS, plan=PLAN), confirmations=(CONFIRMATION, slow, missed))
    figure = tradeoff_figure(document, None, None)
    (confirmed,) = find_traces(figure, TARGET_UNIT, "a run, confirmed")
    (refuted,) = find_traces(figure, TARGET_UNIT, "a run, refuted")
    batches = [run.global_batch for run in (CONFIRMATION, slow, missed)]
    assert [list(confirmed.x), list(refuted.x)] == [batches[:1], batches[1:]]
    assert list(confirmed.y) == [CONFIRMATION.seconds] and list(refuted.y) == [9.5, missed.predicted.high]
    assert confirmed.marker.symbol != refuted.marker.symbol
    assert refuted.marker.color[1] == NEUTRAL_COLOR  # of a shape that is not drawn
    assert "did not reach the target" in refuted.text[1]


def test_no_colour_stands_for_two_things():
    system = build_step_times(*(build_step_prediction(workers, 10, 0.6) for workers in (1, 2, 3, 4, 5)))
    figure = tradeoff_figure(build_document(system=system, statistical=STATISTICAL, plan=PLAN), None, TRIALS)
    colors = {}
    for trace in figure.data:
        if trace.showlegend is not False and trace.name != "not reached":
            colors.setdefault(trace.line.color or trace.marker.color, set()).add(trace.name)
    assert len(colors) == MAX_PLOT_LINES + 3 and all(len(names) == 1 for names in colors.values())


def test_predicted_line_and_band_are_in_milliseconds_per_example():
    figure = tradeoff_figure(build_document(system=SYSTEM), None, None)
    (line,) = find_traces(figure, EXAMPLE_UNIT, "1 worker")
    (band,) = find_traces(figure, EXAMPLE_UNIT, "1 worker, interval")
    assert list(line.x) == [10, 20]
    assert list(line.y) == pytest.approx([60, 40])
    assert (line.line.dash, line.line.color, line.mode) == ("dot", SERIES_COLORS[0], "lines")
    # The band goes along its upper end and back along its lower one.
    assert list(band.x) == [10, 20, 20, 10]
    assert list(band.y) == pytest.approx([120, 80, 20, 30])
    assert (band.fill, band.fillcolor) == ("toself", translucent_color(SERIES_COLORS[0]))
    assert (band.hoverinfo, band.showlegend, band.mode, band.line.width) == ("skip", False, "lines", 0)


def test_each_cluster_shape_has_a_colour_and_marker():
    figure = tradeoff_figure(build_document(system=SYSTEM), STEP_TIMES, None)
    assert find_traces(figure, EXAMPLE_UNIT, "2 workers")[0].line.color == SERIES_COLORS[1]
    line, measured = find_traces(figure, EXAMPLE_UNIT, "1 worker")
    assert line.legendgroup == measured.legendgroup == "1 worker"
    assert (measured.marker.color, measured.marker.symbol) == (SERIES_COLORS[0], "circle")
    assert "predicted" in line.hovertemplate and "measured" in measured.hovertemplate


def test_prediction_without_interval_has_a_line_but_no_band():
    system = build_step_times(build_step_prediction(1, 10, 0.6), build_step_prediction(1, 20, 0.8, has_interval=False))
    figure = tradeoff_figure(build_document(system=system), None, None)
    assert list(find_traces(figure, EXAMPLE_UNIT, "1 worker")[0].x) == [10, 20]
    assert list(find_traces(figure, EXAMPLE_UNIT, "1 worker, interval")[0].x) == [10, 10]


def test_measured_times_are_medians_in_milliseconds_per_example():
    figure = tradeoff_figure(build_document(system=SYSTEM), STEP_TIMES, None)
    _, measured = find_traces(figure, EXAMPLE_UNIT, "1 worker")
    assert (list(measured.x), list(measured.y), measured.mode) == ([10], pytest.approx([50]), "markers")
    assert not measured.showlegend  # the predicted line has the entry


def test_measurements_without_predictions_have_a_legend_of_their_own():
    figure = tradeoff_figure(build_document(), STEP_TIMES, None)
    assert [trace.name for trace in figure.data] == ["1 worker", "4 workers"]
    assert all(trace.showlegend for trace in figure.data)
    assert list(figure.data[1].y) == pytest.approx([20])
    assert max(figure.layout.yaxis.tickvals) >= 50  # milliseconds


def test_milliseconds_are_thousandths_of_a_second():
    step_times = STEP_TIMES.assign(seconds=STEP_TIMES.batch * STEP_TIMES.workers / 1000)  # 1 ms per example
    axis = tradeoff_figure(build_document(), step_times, None).layout.yaxis
    assert (min(axis.tickvals), max(axis.tickvals)) == (1, 7)


def test_examples_to_the_target_have_a_fit_with_a_band():
    figure = tradeoff_figure(build_document(system=SYSTEM, statistical=STATISTICAL), None, None)
    (fit,) = find_traces(figure, EXAMPLES_UNIT, "examples, fit")
    (band,) = find_traces(figure, EXAMPLES_UNIT, "examples, fit, interval")
    assert (list(fit.x), list(fit.y)) == ([10, 20], [4000, 5000])
    assert list(band.y) == [8000, 10000, 2500, 2000]
    assert fit.line.color == FIT_COLOR and FIT_COLOR not in SERIES_COLORS[:MAX_PLOT_LINES]


def test_trials_at_the_best_rate_are_marked_by_whether_they_reached_the_target():
    trials = pd.concat([TRIALS, pd.DataFrame([(40, 0.3, 7, 9000.0, 0)], columns=TRIALS.columns)], ignore_index=True)
    figure = tradeoff_figure(build_document(statistical=STATISTICAL), None, trials)
    (reached,), (missed,) = (
        find_traces(figure, EXAMPLES_UNIT, "trials"),
        find_traces(figure, EXAMPLES_UNIT, "not reached"),
    )
    assert (list(reached.x), list(reached.y)) == ([10, 20], [4100, 5000])
    assert list(reached.text) == ["lr 0.1, seed 3", "lr 0.2, seed 6"]
    assert (list(missed.x), list(missed.y), list(missed.text)) == ([40], [9000], ["lr 0.3, seed 7"])
    assert (reached.marker.symbol, missed.marker.symbol) == ("circle", "triangle-up")
    assert reached.marker.color == missed.marker.color == NEUTRAL_COLOR


def test_time_to_the_target_has_its_interval_and_is_hollow_if_predicted():
    figure = tradeoff_figure(build_document(options=OPTIONS), None, None)
    (times,) = find_traces(figure, TARGET_UNIT, "1 worker")
    assert (list(times.x), list(times.y)) == ([10, 20], [40, 50])
    assert list(times.error_y.array) == pytest.approx([8, 10])
    assert list(times.error_y.arrayminus) == pytest.approx([8, 10])
    assert list(times.marker.symbol) == ["circle", "circle-open"]
    assert times.line.color == SERIES_COLORS[0] and times.mode == "lines+markers"
    assert times.legendgroup == "1 worker" and not times.showlegend


def test_unequal_ends_of_an_interval_are_drawn_on_their_side():
    option = replace(OPTIONS[1], seconds=IntervalEstimate(value=40.0, low=39.0, high=45.0))
    (times,) = find_traces(tradeoff_figure(build_document(options=(option,)), None, None), TARGET_UNIT, "1 worker")
    assert (list(times.error_y.array), list(times.error_y.arrayminus)) == ([5], [1])


def test_plan_is_a_star_with_a_line_at_its_batch():
    document = build_document(plan=PLAN, options=OPTIONS, system=SYSTEM, statistical=STATISTICAL)
    figure = tradeoff_figure(document, None, None)
    (star,) = find_traces(figure, TARGET_UNIT, "the plan")
    assert (list(star.x), list(star.y), star.mode) == ([10], [40], "markers")
    assert (star.marker.symbol, star.marker.color) == ("star", AMBER)
    assert {line.x0 for line in figure.layout.shapes} == {10}
    assert len(figure.layout.shapes) == 3  # through all rows
    assert not tradeoff_figure(build_document(options=OPTIONS), None, None).layout.shapes


def test_axes_have_the_units_of_their_row():
    document = build_document(plan=PLAN, options=OPTIONS, system=SYSTEM, statistical=STATISTICAL)
    layout = tradeoff_figure(document, STEP_TIMES, TRIALS).layout
    axes = [layout.yaxis, layout.yaxis2, layout.yaxis3]
    units = ["ms per example", "examples to the target", "seconds to the target"]
    assert [axis.title.text for axis in axes] == units
    assert all(axis.type == "log" for axis in (*axes, layout.xaxis3))
    # Of 40 to 60 ms, 4,000 to 9,000 examples and 40 to 50 s.
    assert [(min(axis.tickvals), max(axis.tickvals)) for axis in axes] == [(10, 700), (1000, 70_000), (10, 700)]
    assert layout.xaxis3.title.text == "global batch, examples"


def test_pointing_at_a_row_shows_the_values_of_all_rows():
    document = build_document(plan=PLAN, options=OPTIONS, system=SYSTEM, statistical=STATISTICAL)
    figure = tradeoff_figure(document, STEP_TIMES, TRIALS)
    assert {trace.xaxis for trace in figure.data} == {line.xref for line in figure.layout.shapes} == {"x3"}
    assert (figure.layout.hovermode, figure.layout.hoversubplots) == ("x unified", "axis")
    texts = " ".join(trace.hovertemplate for trace in figure.data if trace.hoverinfo != "skip")
    assert all(unit in texts for unit in (EXAMPLE_UNIT, "examples", TARGET_UNIT))


def test_rows_without_data_are_left_out():
    def units(*tables, **parts):
        figure = tradeoff_figure(build_document(**parts), *tables)
        return [title for axis in ("y", "y2", "y3") if (title := row_title(figure, axis))]

    assert units(STEP_TIMES, TRIALS) == [EXAMPLE_UNIT, EXAMPLES_UNIT]
    assert units(None, TRIALS) == units(None, None, statistical=STATISTICAL) == [EXAMPLES_UNIT]
    assert units(None, None, options=OPTIONS) == units(None, None, plan=PLAN) == [TARGET_UNIT]
    one, two = (tradeoff_figure(build_document(), STEP_TIMES, trials).layout.height for trials in (None, TRIALS))
    assert one < two


def test_every_batch_of_the_tables_gets_a_tick_if_there_is_room():
    trials = TRIALS.assign(global_batch=[1500, 1500, 3000, 3000])
    document = build_document(
        options=(build_option(workers=1, batch=500),),
        system=build_step_times(build_step_prediction(1, 10, 0.6)),
        statistical=build_examples((60, 4000.0)),
    )
    axis = tradeoff_figure(document, STEP_TIMES, trials).layout.xaxis3
    assert list(axis.tickvals) == [10, 60, 100, 500, 1500, 3000]
    assert list(axis.ticktext) == ["10", "60", "100", "500", "1,500", "3,000"]
    assert axis.showspikes and axis.spikemode == "across"


def test_shapes_of_plan_and_front_are_drawn_first_then_the_smallest():
    options = tuple(build_option(nodes=nodes, workers=workers) for nodes in (1, 2) for workers in (2, 4, 8, 16))
    document = build_document(
        plan=build_plan(nodes=2, workers=16), front=(build_option(nodes=2, workers=8),), options=options
    )
    assert shapes_to_draw(document) == [(1, 2), (1, 4), (2, 8), (2, 16)]
    assert len(SERIES_COLORS) == MAX_PLOT_LINES + 2  # the fit and the plan have a colour each
    assert shapes_to_draw(build_document(system=SYSTEM)) == [(1, 1), (1, 2)]


def test_more_measured_shapes_than_colours_are_not_drawn():
    rows = [(1, workers, 10, 0.1) for workers in range(1, 10)]
    figure = tradeoff_figure(build_document(), pd.DataFrame(rows, columns=STEP_TIMES.columns), None)
    assert [trace.name for trace in figure.data] == ["1 worker", *(f"{workers} workers" for workers in range(2, 5))]


def test_trials_are_listed_with_the_fewest_examples_first():
    table = trials_table(TRIALS)
    assert [row[0] for row in table.rows] == [10, 20, 10, 20]
    assert [row[-2:] for row in table.rows] == [["yes", "yes"], ["yes", "yes"], ["yes", "no"], ["no", "no"]]
    assert [row[2] for row in table.rows] == ["3", "6", "4", "5"]


def test_panels_are_those_for_which_there_is_data():
    def names(document, step_times=None, trials=None):
        return [panel.name for panel in build_tradeoff_panels(document, step_times, trials)]

    assert names(build_document()) == []
    assert names(build_document(system=SYSTEM)) == ["curves"]
    assert names(build_document(statistical=STATISTICAL)) == ["curves"]
    assert names(build_document(), STEP_TIMES) == ["curves"]
    assert names(build_document(), None, TRIALS) == ["curves", "rates"]
    assert names(build_document(), None, TRIALS.assign(lr="")) == ["curves"]
    assert names(build_document(), None, TRIALS.assign(lr=0.0)) == ["curves"]
    assert names(build_document(front=OPTIONS, options=OPTIONS)) == ["front", "heat"]


def test_panels_say_what_they_show():
    document = build_document(plan=PLAN, system=SYSTEM, front=OPTIONS, options=OPTIONS)
    panels = {panel.name: panel for panel in build_tradeoff_panels(document, STEP_TIMES, TRIALS)}
    for name, words in (
        ("curves", "has a minimum"),
        ("front", "faster and cheaper"),
        ("heat", "workers and batch size"),
        ("rates", "best learning rate"),
    ):
        assert words in panels[name].caption
    assert [plan["seconds"] for plan in panels["front"].slider["plans"]] == [50, 40]
    assert len(panels["curves"].data_table.rows) == 2
    assert all(len(panel.reading) > 100 for panel in panels.values())
    assert find_traces(panels["curves"].figure, EXAMPLES_UNIT, "trials")
