"""The panels of a sweep draw what its files hold."""

import json

import numpy as np
import pandas as pd
import pytest

from dashboards.experiments import load_experiment
from dashboards.page import render_html
from dashboards.panels.pareto_front import build_deadline_slider, pareto_figure, time_heatmap_figure
from dashboards.panels.scaling import measured_speedups, step_time_breakdown
from dashboards.panels.tradeoff import MAX_PLOT_LINES, lr_figure, plans_table, shapes_to_draw, tradeoff_figure
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
def held(tmp_path_factory):
    return load_experiment(write_sweep_folder(tmp_path_factory.mktemp("sweep") / "made-up")).content


def traces(figure, name):
    return [one for one in figure.data if one.name == name]


def test_time_of_an_example_is_that_of_a_step_over_its_examples(held):
    table = measured_step_times(held.step_times).set_index(["workers", "batch"]).seconds
    assert table[1, 64] == pytest.approx((0.01 + 0.064) / 64)
    assert table[4, 16] == pytest.approx((0.01 + 0.016 + 0.015) / 64)
    predicted = predicted_step_times(held.plan).set_index(["workers", "batch"])
    assert predicted.seconds[1, 64] == pytest.approx(table[1, 64], rel=0.02)
    assert (predicted.low <= predicted.seconds).all() and (predicted.seconds <= predicted.high).all()


def test_every_plan_is_the_product_of_both_curves(held):
    needs = predicted_examples(held.plan).set_index("global_batch").examples
    for one in held.plan["options"]:
        assert one["seconds"]["value"] == pytest.approx(
            needs[one["global_batch"]] / one["global_batch"] * one["step"]["seconds"]
        )
    chosen = held.plan["plan"]
    assert chosen["seconds"]["value"] == candidate_plans(held.plan).seconds.min()


def test_what_was_measured_and_what_was_predicted_are_marked_differently(tmp_path):
    write_system_csv(tmp_path / "system.csv")
    write_statistical_csv(tmp_path / "statistical.csv")
    facts = write_plan_folder(
        tmp_path, (ClusterShape(1, 8),), system=tmp_path / "system.csv", statistical=tmp_path / "statistical.csv"
    )
    figure = tradeoff_figure(facts, read_step_times(tmp_path / "system.csv"), None)
    measured, guessed = ({*traces(figure, format_cluster_shape(1, n))[-1].marker.symbol} for n in (2, 8))
    assert not any(symbol.endswith("-open") for symbol in measured)
    assert guessed and all(symbol.endswith("-open") for symbol in guessed)
    assert not [one for one in traces(figure, "8 workers") if one.mode == "markers"]  # nobody timed it


def test_the_deadline_is_kept_by_the_cheapest_of_the_front(held):
    told = build_deadline_slider(held.plan)
    along = held.plan["front"]
    assert [plan["seconds"] for plan in told["plans"]] == [one["seconds"]["value"] for one in along]
    assert told["low"] < min(one["seconds"]["value"] for one in along) <= told["value"] <= told["high"]
    assert pareto_figure(held.plan).data[told["mark"]].name == "cheapest within the deadline"
    assert build_deadline_slider({**held.plan, "front": along[:1]}) is None


def test_the_best_rate_of_each_batch_is_inside_or_said_to_be_at_the_edge(held):
    table = lr_ratios(held.examples_to_target)
    best = table[table.best].set_index("global_batch")
    assert best.lr.to_dict() == pytest.approx({b: 0.1 * (b / 64) ** 0.5 for b in (64, 128, 256, 512)})
    assert best.inside.all() and table.more[~table.best].min() == pytest.approx(1.3)
    fewer = held.examples_to_target[pd.to_numeric(held.examples_to_target.lr) <= 0.1]
    edges = lr_ratios(fewer).query("best").set_index("global_batch").inside
    assert not edges[64]
    assert "circle-open" in lr_figure(fewer).data[1].marker.symbol


def test_the_heat_map_has_a_cell_for_each_plan(held):
    (map_,) = time_heatmap_figure(held.plan).data
    assert np.isfinite(np.array(map_.z, float)).sum() == len({(p["workers"], p["batch"]) for p in held.plan["options"]})


def test_speed_up_is_against_the_fewest_workers_at_the_same_batch(held):
    table = measured_speedups(held.step_times).set_index(["workers", "batch"]).speedup
    assert table[1, 64] == 1
    assert table[4, 64] == pytest.approx(4 * (0.01 + 0.064) / (0.01 + 0.064 + 0.015))


def test_the_parts_of_a_step_add_up_to_it(held):
    table = step_time_breakdown(held.step_times)
    assert (table.compute + table.exchange + table.data).to_numpy() == pytest.approx(table.seconds.to_numpy() * 1000)
    assert step_time_breakdown(held.step_times.drop(columns="data_seconds")).data.eq(0).all()


def test_the_page_says_the_plan_in_words(held):
    text, chosen = render_html(tradeoff_page(held, "made-up")), held.plan["plan"]
    assert f"with {chosen['batch']} examples each" in text
    assert "bound by" in render_html(scaling_page(held, "made-up"))


@pytest.mark.parametrize("which", ["system", "statistical"])
def test_one_table_alone_has_a_page(which, tmp_path):
    path = {"system": write_system_csv, "statistical": write_statistical_csv}[which](tmp_path / f"{which}.csv")
    write_plan_folder(tmp_path, **{which: path})
    found = load_experiment(tmp_path)
    assert found.kind == "plan" and not found.problem
    written = write_pages(found)
    assert [path.name for path in written] == ["curve.html", "scaling.html"]
    assert "There is no plan" in written[0].read_text()


def test_a_sweep_of_many_places_shows_few_and_says_all(tmp_path):
    rows = [
        (n, n * g, b, 0.01 + b / 1000 + 0.002 * n * g) for n in (1, 2, 3, 4) for g in (1, 2, 4) for b in (16, 32, 64)
    ]
    (tmp_path / "system.csv").write_text(
        "nodes,workers,batch,seconds\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    facts = write_plan_folder(
        tmp_path, system=tmp_path / "system.csv", statistical=write_statistical_csv(tmp_path / "s.csv")
    )
    assert len(shapes_to_draw(facts)) == MAX_PLOT_LINES
    chosen = facts["plan"]
    assert (chosen["nodes"], chosen["workers"]) in shapes_to_draw(facts)
    assert len(plans_table(facts).rows) == len(facts["options"])
    json.dumps(build_deadline_slider(facts), allow_nan=False)
