"""The panels of a sweep show what its files hold."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dashboards.experiments import load_experiment
from dashboards.page import render_html
from dashboards.panels.learning_rates import lr_figure
from dashboards.panels.pareto_front import build_deadline_slider, pareto_figure, time_heatmap_figure
from dashboards.panels.scaling import measured_speedups, step_time_breakdown
from dashboards.panels.tradeoff import MAX_PLOT_LINES, plans_table, shapes_to_draw, tradeoff_figure
from dashboards.plan_tables import (
    candidate_plans,
    format_cluster_shape,
    lr_ratios,
    measured_step_times,
    predicted_examples,
    predicted_step_times,
)
from dashboards.reports import scaling_page, tradeoff_page, write_pages
from equipoise.planning.measurements import read_step_times
from equipoise.planning.plan import ClusterShape
from tests.support.sweep_folders import write_plan_folder, write_statistical_csv, write_sweep_folder, write_system_csv


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return load_experiment(write_sweep_folder(tmp_path_factory.mktemp("sweep") / "made-up")).content


def find_traces(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def test_seconds_per_example_are_step_seconds_over_batch_examples(sweep):
    measured = measured_step_times(sweep.step_times).set_index(["workers", "batch"]).seconds
    assert measured[1, 64] == pytest.approx((0.01 + 0.064) / 64)
    assert measured[4, 16] == pytest.approx((0.01 + 0.016 + 0.015) / 64)
    predicted = predicted_step_times(sweep.plan).set_index(["workers", "batch"])
    assert predicted.seconds[1, 64] == pytest.approx(measured[1, 64], rel=0.02)
    assert (predicted.low <= predicted.seconds).all() and (predicted.seconds <= predicted.high).all()


def test_plan_seconds_are_steps_needed_times_step_seconds(sweep):
    needed_examples = predicted_examples(sweep.plan).set_index("global_batch").examples
    for option in sweep.plan.options:
        assert option.seconds.value == pytest.approx(
            needed_examples[option.global_batch] / option.global_batch * option.step.seconds
        )
    assert sweep.plan.plan.seconds.value == candidate_plans(sweep.plan).seconds.min()


def test_measured_and_predicted_points_have_different_markers(tmp_path):
    write_system_csv(tmp_path / "system.csv")
    write_statistical_csv(tmp_path / "statistical.csv")
    document = write_plan_folder(
        tmp_path, (ClusterShape(1, 8),), system=tmp_path / "system.csv", statistical=tmp_path / "statistical.csv"
    )
    figure = tradeoff_figure(document, read_step_times(tmp_path / "system.csv"), None)
    on_two, on_eight = (find_traces(figure, format_cluster_shape(1, workers))[-1] for workers in (2, 8))
    is_open = {batch: symbol.endswith("-open") for batch, symbol in zip(on_two.x, on_two.marker.symbol, strict=True)}
    assert [batch for batch in is_open if not is_open[batch]] == [64, 128, 256]
    assert is_open[96]  # between two trials
    assert all(symbol.endswith("-open") for symbol in on_eight.marker.symbol)
    # 8 workers were not measured
    assert not [trace for trace in find_traces(figure, "8 workers") if trace.mode == "markers"]


def test_deadline_slider_offers_the_plans_of_the_front(sweep):
    slider = build_deadline_slider(sweep.plan)
    front = sweep.plan.front
    assert [plan["seconds"] for plan in slider["plans"]] == [setting.seconds.value for setting in front]
    assert slider["low"] < min(setting.seconds.value for setting in front) <= slider["value"] <= slider["high"]
    assert pareto_figure(sweep.plan).data[slider["mark"]].name == "cheapest within the deadline"
    assert build_deadline_slider(replace(sweep.plan, front=front[:1])) is None


def test_best_learning_rate_is_inside_or_marked_at_the_edge(sweep):
    table = lr_ratios(sweep.examples_to_target)
    best = table[table.best].set_index("global_batch")
    assert best.lr.to_dict() == pytest.approx({b: 0.1 * (b / 64) ** 0.5 for b in (64, 128, 256, 512)})
    assert best.inside.all() and table.more[~table.best].min() == pytest.approx(1.3)
    low_rates = sweep.examples_to_target[pd.to_numeric(sweep.examples_to_target.lr) <= 0.1]
    inside = lr_ratios(low_rates).query("best").set_index("global_batch").inside
    assert not inside[64]
    assert "circle-open" in lr_figure(low_rates).data[1].marker.symbol


def test_heatmap_has_a_cell_for_each_plan(sweep):
    (heatmap,) = time_heatmap_figure(sweep.plan).data
    assert np.isfinite(np.array(heatmap.z, float)).sum() == len(
        {(option.workers, option.batch) for option in sweep.plan.options}
    )


def test_speedup_is_relative_to_the_fewest_workers_at_the_same_batch(sweep):
    speedups = measured_speedups(sweep.step_times).set_index(["workers", "batch"]).speedup
    assert speedups[1, 64] == 1
    assert speedups[4, 64] == pytest.approx(4 * (0.01 + 0.064) / (0.01 + 0.064 + 0.015))


def test_parts_of_a_step_add_up_to_its_time(sweep):
    table = step_time_breakdown(sweep.step_times)
    assert (table.compute + table.exchange + table.data).to_numpy() == pytest.approx(table.seconds.to_numpy() * 1000)
    assert step_time_breakdown(sweep.step_times.drop(columns="data_seconds")).data.eq(0).all()


def test_page_describes_the_plan_in_words(sweep):
    html = render_html(tradeoff_page(sweep, "made-up"))
    assert f"with {sweep.plan.plan.batch} examples each" in html
    assert "bound by" in render_html(scaling_page(sweep, "made-up"))


@pytest.mark.parametrize("table_name", ["system", "statistical"])
def test_plan_from_a_single_table_has_pages(table_name, tmp_path):
    path = {"system": write_system_csv, "statistical": write_statistical_csv}[table_name](
        tmp_path / f"{table_name}.csv"
    )
    write_plan_folder(tmp_path, **{table_name: path})
    experiment = load_experiment(tmp_path)
    assert experiment.kind == "plan" and not experiment.problem
    pages = write_pages(experiment)
    assert [path.name for path in pages] == ["curve.html", "scaling.html"]
    assert "There is no plan" in pages[0].read_text()


def test_many_cluster_shapes_draw_few_lines_and_list_all_plans(tmp_path):
    rows = [
        (nodes, nodes * workers_per_node, batch, 0.01 + batch / 1000 + 0.002 * nodes * workers_per_node)
        for nodes in (1, 2, 3, 4)
        for workers_per_node in (1, 2, 4)
        for batch in (16, 32, 64)
    ]
    (tmp_path / "system.csv").write_text(
        "nodes,workers,batch,seconds\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    document = write_plan_folder(
        tmp_path, system=tmp_path / "system.csv", statistical=write_statistical_csv(tmp_path / "s.csv")
    )
    assert len(shapes_to_draw(document)) == MAX_PLOT_LINES
    assert (document.plan.nodes, document.plan.workers) in shapes_to_draw(document)
    assert len(plans_table(document).rows) == len(document.options)
    json.dumps(build_deadline_slider(document), allow_nan=False)
