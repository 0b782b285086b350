"""The panels of a sweep draw what its files hold."""

import json

import numpy as np
import pandas as pd
import pytest

from dashboards import plan_tables as frames
from dashboards import reports as pages
from dashboards.experiments import at
from dashboards.page import html
from dashboards.panels import pareto_front as front
from dashboards.panels import scaling
from dashboards.panels import tradeoff as curve
from equipoise.planning import measurements as tables
from equipoise.planning.plan import Place
from tests.support.sweep_folders import planned_alone, statistical, sweep, system


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    return at(sweep(tmp_path_factory.mktemp("sweep") / "made-up")).found


def traces(figure, name):
    return [one for one in figure.data if one.name == name]


def test_time_of_an_example_is_that_of_a_step_over_its_examples(held):
    table = frames.timed(held.system).set_index(["workers", "batch"]).seconds
    assert table[1, 64] == pytest.approx((0.01 + 0.064) / 64)
    assert table[4, 16] == pytest.approx((0.01 + 0.016 + 0.015) / 64)
    predicted = frames.steps(held.plan).set_index(["workers", "batch"])
    assert predicted.seconds[1, 64] == pytest.approx(table[1, 64], rel=0.02)
    assert (predicted.low <= predicted.seconds).all() and (predicted.seconds <= predicted.high).all()


def test_every_plan_is_the_product_of_both_curves(held):
    needs = frames.needs(held.plan).set_index("global_batch").examples
    for one in held.plan["options"]:
        assert one["seconds"]["value"] == pytest.approx(
            needs[one["global_batch"]] / one["global_batch"] * one["step"]["seconds"]
        )
    chosen = held.plan["plan"]
    assert chosen["seconds"]["value"] == frames.options(held.plan).seconds.min()


def test_what_was_measured_and_what_was_predicted_are_marked_differently(tmp_path):
    system(tmp_path / "system.csv")
    statistical(tmp_path / "statistical.csv")
    facts = planned_alone(
        tmp_path, (Place(1, 8),), system=tmp_path / "system.csv", statistical=tmp_path / "statistical.csv"
    )
    figure = curve.curves(facts, tables.system(tmp_path / "system.csv"), None)
    measured, guessed = ({*traces(figure, frames.place(1, n))[-1].marker.symbol} for n in (2, 8))
    assert not any(symbol.endswith("-open") for symbol in measured)
    assert guessed and all(symbol.endswith("-open") for symbol in guessed)
    assert not [one for one in traces(figure, "8 workers") if one.mode == "markers"]  # nobody timed it


def test_the_deadline_is_kept_by_the_cheapest_of_the_front(held):
    told = front.deadline(held.plan)
    along = held.plan["front"]
    assert [plan["seconds"] for plan in told["plans"]] == [one["seconds"]["value"] for one in along]
    assert told["low"] < min(one["seconds"]["value"] for one in along) <= told["value"] <= told["high"]
    assert front.front(held.plan).data[told["mark"]].name == "cheapest within the deadline"
    assert front.deadline({**held.plan, "front": along[:1]}) is None


def test_the_best_rate_of_each_batch_is_inside_or_said_to_be_at_the_edge(held):
    table = frames.rates(held.statistical)
    best = table[table.best].set_index("global_batch")
    assert best.lr.to_dict() == pytest.approx({b: 0.1 * (b / 64) ** 0.5 for b in (64, 128, 256, 512)})
    assert best.inside.all() and table.more[~table.best].min() == pytest.approx(1.3)
    fewer = held.statistical[pd.to_numeric(held.statistical.lr) <= 0.1]
    edges = frames.rates(fewer).query("best").set_index("global_batch").inside
    assert not edges[64]
    assert "circle-open" in curve.lr(fewer).data[1].marker.symbol


def test_the_heat_map_has_a_cell_for_each_plan(held):
    (map_,) = front.heat(held.plan).data
    assert np.isfinite(np.array(map_.z, float)).sum() == len({(p["workers"], p["batch"]) for p in held.plan["options"]})


def test_speed_up_is_against_the_fewest_workers_at_the_same_batch(held):
    table = scaling.measured(held.system).set_index(["workers", "batch"]).speedup
    assert table[1, 64] == 1
    assert table[4, 64] == pytest.approx(4 * (0.01 + 0.064) / (0.01 + 0.064 + 0.015))


def test_the_parts_of_a_step_add_up_to_it(held):
    table = scaling.split(held.system)
    assert (table.compute + table.exchange + table.data).to_numpy() == pytest.approx(table.seconds.to_numpy() * 1000)
    assert scaling.split(held.system.drop(columns="data_seconds")).data.eq(0).all()


def test_the_page_says_the_plan_in_words(held):
    text, chosen = html(pages.of_curve(held, "made-up")), held.plan["plan"]
    assert f"with {chosen['batch']} examples each" in text
    assert "bound by" in html(pages.of_scaling(held, "made-up"))


@pytest.mark.parametrize("which", ["system", "statistical"])
def test_one_table_alone_has_a_page(which, tmp_path):
    path = {"system": system, "statistical": statistical}[which](tmp_path / f"{which}.csv")
    planned_alone(tmp_path, **{which: path})
    found = at(tmp_path)
    assert found.kind == "plan" and not found.why
    written = pages.left(found)
    assert [path.name for path in written] == ["curve.html", "scaling.html"]
    assert "There is no plan" in written[0].read_text()


def test_a_sweep_of_many_places_shows_few_and_says_all(tmp_path):
    rows = [
        (n, n * g, b, 0.01 + b / 1000 + 0.002 * n * g) for n in (1, 2, 3, 4) for g in (1, 2, 4) for b in (16, 32, 64)
    ]
    (tmp_path / "system.csv").write_text(
        "nodes,workers,batch,seconds\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    )
    facts = planned_alone(tmp_path, system=tmp_path / "system.csv", statistical=statistical(tmp_path / "s.csv"))
    assert len(curve.shown(facts)) == curve.MOST
    chosen = facts["plan"]
    assert (chosen["nodes"], chosen["workers"]) in curve.shown(facts)
    assert len(curve.numbers(facts).rows) == len(facts["options"])
    json.dumps(front.deadline(facts), allow_nan=False)
