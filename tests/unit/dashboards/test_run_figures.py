"""The figure, facts and table of a training run's page show what its record holds."""

from dataclasses import replace

import pytest

from dashboards.page import render_html
from dashboards.panels.training_run import (
    LAPS_PER_NOISE_POINT,
    build_run_panels,
    describe_result,
    laps_figure,
    laps_table,
    run_facts,
)
from dashboards.reports import run_page
from dashboards.theme import AMBER, BLUE, GREEN, NEUTRAL_COLOR, ORANGE, PURPLE, SKY
from equipoise.hardware_facts import HardwareFacts
from equipoise.runs.target import Target
from tests.unit.dashboards.test_training_run import record


def traces_of(run):
    """Return the traces of a run's figure by name."""
    return {trace.name: trace for trace in laps_figure(laps_table(run), run.goal).data}


def with_laps(run, **changes):
    """Return a run with these facts in each of its laps."""
    return replace(run, laps=[replace(lap, **changes) for lap in run.laps])


def repeat_laps(count, **changes):
    """Return a run of this many equal laps."""
    lap = record().laps[0]
    return replace(record(), laps=[replace(lap, seen=100 * number, **changes) for number in range(1, count + 1)])


def test_each_quantity_is_drawn_over_the_examples_seen():
    traces = traces_of(record())
    everywhere, seen = [100, 200, 300, 400, 500], {name: list(trace.x) for name, trace in traces.items()}
    assert seen.pop("metric, validation") == [200, 400]
    assert all(values == everywhere for values in seen.values())
    assert list(traces["loss, training"].y) == pytest.approx([2, 1, 2 / 3, 0.5, 0.4])
    assert list(traces["metric, validation"].y) == pytest.approx([0.4, 0.8])
    assert list(traces["examples/s"].y) == pytest.approx([2000] * 5)
    assert list(traces["exchange"].y) == pytest.approx([1] * 5)  # ms per step
    assert list(traces["data"].y) == pytest.approx([0.5] * 5)


def test_each_quantity_has_its_colour():
    traces = traces_of(record())
    assert {name: trace.line.color for name, trace in traces.items() if trace.type == "scatter"} == {
        "loss, training": NEUTRAL_COLOR,
        "metric, validation": BLUE,
        "examples/s": PURPLE,
        "noise scale": AMBER,
    }
    assert {name: trace.marker.color for name, trace in traces.items() if trace.type == "bar"} == {
        "compute": SKY,
        "exchange": ORANGE,
        "data": GREEN,
    }


def test_quantities_lie_below_each_other_and_the_metric_on_an_axis_of_its_own():
    figure = laps_figure(laps_table(record()), record().goal)
    titles = {trace.name: figure.layout[trace.yaxis.replace("y", "yaxis")].title.text for trace in figure.data}
    assert titles == {
        "loss, training": "loss",
        "metric, validation": "metric",
        "examples/s": "examples/s",
        "compute": "ms per step",
        "exchange": "ms per step",
        "data": "ms per step",
        "noise scale": "noise scale, examples",
    }
    assert figure.layout.yaxis2.side == "right" and figure.layout.yaxis2.overlaying == "y"
    bottoms = [figure.layout[name].domain[0] for name in ("yaxis", "yaxis3", "yaxis4", "yaxis5")]
    assert bottoms == sorted(bottoms, reverse=True)


def test_all_quantities_share_one_axis_of_the_examples_seen():
    figure = laps_figure(laps_table(record()), record().goal)
    assert {trace.xaxis for trace in figure.data} == {"x4"}  # zooming into one quantity zooms into all
    assert [trace.name for trace in figure.data if trace.showlegend is False] == ["examples/s", "noise scale"]


def test_axes_are_those_of_their_quantity():
    layout = laps_figure(laps_table(record()), record().goal).layout
    assert layout.yaxis2.range[0] == 0 and 1 <= layout.yaxis2.range[1] < 1.1  # a metric of 1 is seen
    assert layout.yaxis3.rangemode == "tozero"
    assert layout.yaxis5.type == "log"
    assert layout.xaxis4.title.text == "examples seen" and layout.xaxis4.showgrid
    assert (layout.hovermode, layout.hoversubplots) == ("x unified", "axis")  # pointing at one shows all
    assert layout.barmode == "stack" and layout.bargap == 0
    assert layout.legend.traceorder == "normal"


def test_target_is_a_line_on_the_axis_of_the_metric():
    (line,) = laps_figure(laps_table(record()), Target(value=0.75)).layout.shapes
    assert (line.y0, line.y1, line.xref, line.yref) == (0.75, 0.75, "x4 domain", "y2")
    assert (line.line.color, line.line.dash) == (BLUE, "dot")


@pytest.mark.parametrize(("laps", "mode"), [(2, "lines+markers"), (3, "lines")])
def test_lines_of_few_points_have_markers(laps, mode):
    assert traces_of(repeat_laps(laps))["loss, training"].mode == mode


def test_part_that_takes_no_time_is_not_drawn():
    assert "exchange" not in traces_of(with_laps(record(), exchange_seconds=0.0))
    assert {"compute", "data"} <= traces_of(with_laps(record(), exchange_seconds=0.0)).keys()


def test_noise_scale_is_that_of_the_mean_terms_of_the_last_laps():
    laps = list(repeat_laps(LAPS_PER_NOISE_POINT + 1).laps)
    laps[0] = replace(laps[0], local_norm=20, total_norm=12, draws=30)  # |G|^2 = 4, tr(Sigma) = 128
    noise = laps_table(replace(record(), laps=laps)).noise
    assert noise[0] == pytest.approx(128 / 4)
    assert noise[1] == pytest.approx((30 * 128 + 10 * 80) / (40 * 4))
    assert noise[LAPS_PER_NOISE_POINT - 1] > 20
    assert noise[LAPS_PER_NOISE_POINT] == pytest.approx(20)
    assert LAPS_PER_NOISE_POINT == 20


def test_noise_scale_is_drawn_only_where_both_terms_are_positive():
    assert laps_table(with_laps(record(), local_norm=30, total_norm=9)).noise.isna().all()  # |G|^2 < 0
    assert laps_table(with_laps(record(), local_norm=18, total_norm=9)).noise.isna().all()  # |G|^2 = 0
    assert laps_table(with_laps(record(), local_norm=4, total_norm=4)).noise.isna().all()  # no variance
    laps = list(record().laps)
    laps[0] = replace(laps[0], local_norm=None, total_norm=None)
    noise = laps_table(replace(record(), laps=laps)).noise
    assert noise.isna().tolist() == [True, False, False, False, False]
    assert noise[1] == pytest.approx(20)


def test_noise_scale_does_not_depend_on_the_scale_of_the_gradient():
    noise = laps_table(with_laps(record(), local_norm=14e-6, total_norm=9e-6)).noise
    assert noise.tolist() == pytest.approx([20] * 5)


def test_result_names_the_best_metric_even_if_it_was_not_the_last():
    laps = [replace(lap, metric=metric) for lap, metric in zip(record().laps, [0.1, 0.7, None, 0.5, 0.6], strict=True)]
    assert "the best metric was 0.7;" in describe_result(replace(record(), laps=laps))


def test_time_to_the_target_is_in_proportion_to_the_examples_needed():
    reached = replace(with_laps(record(), seconds=20.0), examples_to_target=250.0, status="reached_target")
    assert "after 250 examples, in 50 s of training" in describe_result(reached)


def test_run_that_reached_its_target_before_its_first_lap_ended_without_evaluation():
    assert describe_result(replace(record(), laps=[], examples_to_target=10.0, status="failed")) == (
        "Ended before its first evaluation (failed)."
    )


def test_facts_of_a_run():
    run = replace(record(), examples_to_target=1234.0)
    assert run_facts(run) == {
        "workload": "digits",
        "status": "max examples",
        "workers x batch": f"{run.config.workers} x {run.config.batch_size}",
        "learning rate": f"{run.config.lr:g}",
        "examples to the target": "1,230",
        "training time": "250 ms",
        "throughput": "2,000 examples/s",
        "test metric": "0.8",
        "noise scale": "about 20 examples",
    }


def test_facts_name_accumulated_batches_and_unknown_noise():
    run = with_laps(record(), local_norm=None, total_norm=None, draws=0)
    config = replace(run.config, workers=2, batch_size=16, grad_accumulation=2)
    facts = run_facts(replace(run, config=config, test=None))
    assert facts["workers x batch"] == "2 x 16 x 2"
    assert facts["noise scale"] == "not measurable: no step was measured"
    assert facts["test metric"] == facts["examples to the target"] == "-"


def test_numbers_behind_the_figure_are_those_of_the_laps():
    (panel,) = build_run_panels(record())
    assert panel.data_table.columns == [
        *("seen", "loss", "metric", "examples", "seconds", "compute seconds", "exchange seconds", "data seconds")
    ]
    first, second, *_ = panel.data_table.rows
    assert first == [100, 2, None, 100, 0.05, 0.03, 0.01, 0.005]
    assert second[:3] == [200, 1, 0.4]
    assert len(panel.data_table.rows) == 5
    assert "noise scale" in panel.caption
    (line,) = panel.figure.layout.shapes
    assert line.y0 == 0.9  # the target of the run


def test_page_of_a_run_names_its_settings_and_machine():
    run = replace(record(), machine=HardwareFacts(device="NVIDIA H200"))
    config = replace(run.config, workers=2, batch_size=16, lr=0.25, seed=7)
    page = run_page(replace(run, config=config, target=0.95))
    assert page.title == "digits: 2 x 16, lr 0.25"
    assert page.lead == "Trained on NVIDIA H200; seed 7; target at least 0.95."
    (section,) = page.sections
    assert [part.name for part in section.parts] == ["facts", "laps-panel"]
    assert section.parts[0].facts["learning rate"] == "0.25"


def test_page_of_a_run_without_laps_or_machine_says_so():
    page = run_page(replace(record(), laps=[]))
    assert page.lead.startswith("Trained on a machine;")
    assert [part.name for part in page.sections[0].parts] == ["facts", "nothing"]
    assert "before its first lap" in render_html(page)


def with_metrics(*metrics, value, lower_is_better=False):
    """Return a run with these metrics, one a lap, and this target."""
    laps = [replace(lap, metric=metric) for lap, metric in zip(record().laps, metrics, strict=False)]
    return replace(record(), laps=laps, target=value, lower_is_better=lower_is_better)


@pytest.mark.parametrize(
    ("run", "metric_range"),
    [
        (with_metrics(0.0, 1.0, value=0.9), [0, 1.02]),
        (with_metrics(None, None, value=0.9), [0, 1.02]),
        (with_metrics(0.2, 0.7, value=None), [0, 1.02]),
        (with_metrics(None, value=None), [0, 1.02]),
        (with_metrics(0.5, 0.7, value=2.5), [0.4, 2.6]),  # the target is out of reach, and in view
        (with_metrics(-1.0, 0.6, value=0.9), [-1.095, 0.995]),
        (with_metrics(3.0, 12.0, value=23.0), [2.0, 24.0]),
        (with_metrics(2.2, 0.4, value=0.2, lower_is_better=True), [0.1, 2.3]),
        (with_metrics(0.8, 0.4, value=0.6, lower_is_better=True), [0.38, 0.82]),  # a loss below 1
        (with_metrics(20.0, value=None), [19.0, 21.0]),
        (with_metrics(0.0, value=0.0, lower_is_better=True), [-0.05, 0.05]),
    ],
)
def test_axis_of_the_metric_shows_all_values_and_the_target(run, metric_range):
    layout = laps_figure(laps_table(run), run.goal).layout
    assert layout.yaxis2.range == pytest.approx(metric_range)
    assert [line.y0 for line in layout.shapes] == ([] if run.target is None else [run.target])


def test_run_of_a_program_that_reports_its_metric_alone_is_drawn_without_the_rest():
    unknown = dict.fromkeys(("lr", "loss", "data_seconds", "compute_seconds", "exchange_seconds", "local_norm"))
    run = with_laps(record(), **unknown)
    figure = laps_figure(laps_table(run), run.goal)
    assert {trace.name for trace in figure.data} == {"metric, validation", "examples/s", "noise scale"}
    assert not figure.layout.yaxis.visible  # an axis of a loss that nobody has measured
    assert describe_result(run).endswith("the best metric was 0.8.")
    (panel,) = build_run_panels(run)
    assert panel.data_table.rows[1] == [200, None, 0.4, 100, 0.05, None, None, None]
    assert "0.8" in render_html(run_page(run))


def test_loss_that_was_measured_in_some_laps_is_drawn_there():
    laps = list(record().laps)
    laps[1] = replace(laps[1], loss=None)
    trace = traces_of(replace(record(), laps=laps))["loss, training"]
    assert list(trace.x) == [100, 300, 400, 500] and list(trace.y) == pytest.approx([2, 2 / 3, 0.5, 0.4])


def test_result_of_a_run_whose_metric_falls():
    missed = with_metrics(2.2, 0.4, 0.5, value=0.2, lower_is_better=True)
    assert describe_result(missed).startswith(
        "Did not reach the target of at most 0.2: the best metric was 0.4; the time of a step"
    )
    reached = replace(missed, target=0.45, examples_to_target=197.0, status="reached_target")
    assert describe_result(reached).startswith("Reached the target of at most 0.45 after 197 examples, in ")
    assert run_page(missed).lead.endswith("; target at most 0.2.")


def test_result_of_a_run_without_a_target():
    run = with_metrics(2.2, 0.4, 0.5, value=None, lower_is_better=True)
    assert describe_result(run).startswith(
        "Trained its 300 examples in 150 ms, without a target: the best metric was 0.4; the time of a step"
    )
    stopped = replace(run, status="failed", reason="the loss was nan")
    assert describe_result(stopped).startswith(
        "Ended (failed: the loss was nan) after 300 examples in 150 ms, without a target: the best metric was 0.4"
    )
    assert "without a target: it was not evaluated" in describe_result(with_metrics(None, value=None))
    assert run_page(run).lead.endswith("; target none.")
