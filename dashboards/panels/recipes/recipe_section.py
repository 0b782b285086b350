"""Section of a sweep's page on recipes: what each does to the examples at each batch, and to the critical batch."""

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Section, Table, TableCell
from dashboards.panels.tick_labels import label_batches
from dashboards.theme import (
    apply_theme,
    format_interval,
    format_significant,
    format_time_interval,
    series_color,
    series_symbol,
    set_log_axis,
)
from equipoise.formatting import capitalize_first
from equipoise.planning.recipe_choice.recipe_report import RecipeAtBatch, RecipeReport, RecipeResult

RECIPE_COLUMNS = ["recipe", "trials", "critical batch", "times plain", "fewest examples", "predicted s", "in words"]
BATCH_COLUMNS = ["recipe", "global batch", "lr", "examples", "runs at the target", "times plain", "pairs"]
READING_OF_RECIPES = (
    "Each mark is the geometric mean of the runs at the best learning rate of a recipe and a batch; lower is better. A"
    " line that stays flat for longer belongs to a recipe with a larger critical batch. Whether two recipes differ"
    " is in the table, whose ratios compare runs of equal seeds; in brackets are intervals of 80 %."
)


def build_recipe_section(report: RecipeReport) -> Section:
    """Build the section on recipes of a sweep that compared several."""
    paragraphs = [f"The plan is made with `{report.chosen}`: {report.why}."]
    return Section(title="Recipes", paragraphs=paragraphs, parts=[build_recipe_panel(report), recipes_table(report)])


def build_recipe_panel(report: RecipeReport) -> Panel:
    """Build the panel of the examples to the target over the batch, a line for each recipe."""
    return Panel(
        name="recipes",
        figure=recipes_figure(report),
        caption="Examples to the target over the global batch, by recipe.",
        reading=READING_OF_RECIPES,
        data_table=batches_table(report),
    )


def recipes_figure(report: RecipeReport) -> go.Figure:
    """Draw the examples of each recipe at the batches where it reached the target."""
    figure = go.Figure()
    for index, each in enumerate(report.recipes):
        rows = [row for row in each.at_batches if row.examples is not None]
        figure.add_scatter(
            x=[row.global_batch for row in rows],
            y=[row.examples for row in rows],
            mode="lines+markers",
            line={"color": series_color(index)},
            marker={"symbol": series_symbol(index), "size": 9},
            text=[f"lr {row.lr:.3g}, {row.reached} of {row.runs} runs" for row in rows],
            hovertemplate="%{y:,.0f} examples (%{text})",
            name=each.recipe,
        )
    reached = [row for each in report.recipes for row in each.at_batches if row.examples is not None]
    set_log_axis(figure, "y", [row.examples or 0.0 for row in reached], "examples")
    label_batches(figure, {row.global_batch for row in reached} or {1}, "global batch, examples")
    return apply_theme(figure)


def recipes_table(report: RecipeReport) -> Table:
    """Return the table of all recipes, the plain one first."""
    return Table(
        name="recipes-table", columns=RECIPE_COLUMNS, rows=[list_recipe_cells(each) for each in report.recipes]
    )


def list_recipe_cells(result: RecipeResult) -> list[TableCell]:
    """Return the cells of one recipe."""
    seconds = result.seconds
    return [
        result.recipe,
        result.trials,
        format_interval(result.critical_batch),
        format_interval(result.critical_ratio),
        format_interval(result.min_examples),
        NumberCell(seconds.value if seconds else None, format_time_interval(seconds) if seconds else "-"),
        capitalize_first(result.verdict) or "the options of the sweep",
    ]


def batches_table(report: RecipeReport) -> Table:
    """Return the table of all recipes at all batches."""
    rows = [list_batch_cells(each.recipe, row) for each in report.recipes for row in each.at_batches]
    return Table(name="recipe-batches", columns=BATCH_COLUMNS, rows=rows)


def list_batch_cells(recipe: str, row: RecipeAtBatch) -> list[TableCell]:
    """Return the cells of one recipe at one batch."""
    return [
        recipe,
        row.global_batch,
        NumberCell(row.lr, format_significant(row.lr)),
        NumberCell(row.examples, format_significant(row.examples)),
        f"{row.reached} of {row.runs}",
        format_interval(row.ratio),
        row.pairs,
    ]
