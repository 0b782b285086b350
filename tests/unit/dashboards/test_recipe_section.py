"""The section of a sweep's page on recipes."""

import json

import pytest

from dashboards.experiments import load_experiment
from dashboards.page import render_html
from dashboards.panels.recipes.recipe_section import batches_table, recipes_figure, recipes_table
from dashboards.reports import tradeoff_page
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.recipe_choice.recipe_report import RECIPES_FILE, RecipeAtBatch, RecipeReport, RecipeResult
from jobs.ray_tune.recipes.recipe_text import format_recipes
from tests.support.sweep_folders import write_sweep_folder


def estimate(value):
    return IntervalEstimate(value=value, low=0.8 * value, high=1.2 * value)


PLAIN = RecipeResult(
    recipe="plain",
    options={},
    trials=9,
    reached=8,
    critical_batch=estimate(60.0),
    min_examples=estimate(5000.0),
    at_batches=(
        RecipeAtBatch(global_batch=16, lr=0.03, examples=6000.0, runs=3, reached=3),
        RecipeAtBatch(global_batch=512, lr=0.1, examples=None, runs=1, reached=0),
    ),
    seconds=estimate(4.0),
)
LAMB = RecipeResult(
    recipe="lamb",
    options={"optimizer": "lamb"},
    trials=7,
    reached=7,
    critical_batch=None,
    min_examples=None,
    at_batches=(
        RecipeAtBatch(global_batch=16, lr=0.01, examples=9000.0, runs=3, reached=3, ratio=estimate(1.5), pairs=3),
    ),
    verdict="more at 16 (1.5 times)",
)
REPORT = RecipeReport(chosen="plain", why="no other recipe is faster", recipes=(PLAIN, LAMB))


def test_lines_have_the_batches_at_which_the_target_was_reached():
    plain, lamb = recipes_figure(REPORT).data
    assert (plain.name, list(plain.x), list(plain.y)) == ("plain", [16], [6000.0])
    assert (lamb.name, list(lamb.x), list(lamb.y)) == ("lamb", [16], [9000.0])
    assert not plain.marker.symbol.endswith("open")  # measured


def test_tables_have_all_recipes_and_all_batches():
    rows = recipes_table(REPORT).rows
    assert [row[0] for row in rows] == ["plain", "lamb"] and rows[1][2] == "-"
    assert rows[1][-1] == "More at 16 (1.5 times)"
    cells = batches_table(REPORT).rows
    assert [(row[0], row[1], row[4]) for row in cells] == [
        ("plain", 16, "3 of 3"),
        ("plain", 512, "0 of 1"),
        ("lamb", 16, "3 of 3"),
    ]
    assert all(isinstance(row[2].value, float) and isinstance(row[2].text, str) for row in cells)


def test_page_has_the_section_of_a_sweep_over_recipes(tmp_path):
    folder = write_sweep_folder(tmp_path / "sweep", seeds=1)
    without = load_experiment(folder).content
    assert without.recipes is None
    assert "recipes" not in [part.name for section in tradeoff_page(without, "name").sections for part in section.parts]
    (folder / RECIPES_FILE).write_text(json.dumps(REPORT.to_json()))
    sweep = load_experiment(folder).content
    assert sweep.recipes == REPORT
    html = render_html(tradeoff_page(sweep, "name"))
    assert 'id="recipes"' in html and "no other recipe is faster" in html
    (folder / RECIPES_FILE).write_text(json.dumps(REPORT.to_json() | {"recipes": 3}))
    assert "damaged" in load_experiment(folder).problem


def test_report_without_any_run_at_the_target_is_shown():
    empty = RecipeReport(chosen="plain", why="no recipe has a plan", recipes=(PLAIN,))
    empty = RecipeReport.from_json(empty.to_json() | {"recipes": [PLAIN.__class__(**vars(PLAIN) | {"at_batches": ()})]})
    assert recipes_figure(empty).data[0].x == ()


@pytest.mark.parametrize("words", ["x 1.50 (1.2-1.8)", "not in 1 run", "lamb: more at 16", "made with plain: no other"])
def test_terminal_has_the_same(words):
    assert words in format_recipes(REPORT)
