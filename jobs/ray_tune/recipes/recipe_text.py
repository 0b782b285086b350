"""The recipes of a sweep as terminal text."""

from equipoise.formatting import make_printable, pluralize
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.recipe_choice.recipe_report import RecipeAtBatch, RecipeReport, RecipeResult


def format_recipes(report: RecipeReport) -> str:
    """Format what each recipe does as two tables, a sentence for each, and the choice."""
    name_width = max(len(each.recipe) for each in report.recipes)
    lines = [f"{'recipe':<{name_width}}  trials  critical batch (80 %)    least examples (80 %)      seconds (80 %)"]
    lines += [format_recipe(each, name_width) for each in report.recipes]
    lines += format_examples_table(report, name_width)
    lines += [f"{each.recipe}: {each.verdict}" for each in report.recipes if each.verdict]
    lines.append(f"the plan is made with {report.chosen}: {report.why}")
    return "\n".join(map(make_printable, lines))


def format_recipe(result: RecipeResult, name_width: int) -> str:
    """Format one recipe as a row."""
    cells = (
        f"{format_estimate(result.critical_batch):<23}",
        f"{format_estimate(result.min_examples):<25}",
        format_estimate(result.seconds),
    )
    return f"{result.recipe:<{name_width}}  {result.trials:>6}  {'  '.join(cells)}"


def format_examples_table(report: RecipeReport, name_width: int) -> list[str]:
    """Format the examples to the target by recipe and global batch, with the ratio to the plain recipe in pairs."""
    batches = sorted({row.global_batch for each in report.recipes for row in each.at_batches})
    if not batches:
        return []
    lines = [f"{'examples':<{name_width}}" + "".join(f"{batch:>26,}" for batch in batches)]
    for each in report.recipes:
        rows = {row.global_batch: row for row in each.at_batches}
        cells = (f"{format_batch_examples(rows.get(batch)):>26}" for batch in batches)
        lines.append(f"{each.recipe:<{name_width}}" + "".join(cells))
    return lines


def format_batch_examples(row: RecipeAtBatch | None) -> str:
    """Format the examples at one batch, such as `9,150, x 0.71 (0.6-0.9)`; a dash where it was not tried."""
    if row is None:
        return "-"
    if row.examples is None:
        return f"not in {pluralize(row.runs, 'run')}"
    ratio = f", x {row.ratio.value:.2f} ({row.ratio.low:.2g}-{row.ratio.high:.2g})" if row.ratio else ""
    return f"{row.examples:,.0f}{ratio}"


def format_estimate(estimate: IntervalEstimate | None) -> str:
    """Format a value with its interval; a dash for None."""
    if estimate is None:
        return "-"
    return " ".join(
        f"{before}{value:,.0f}{after}" if value >= 100 else f"{before}{value:.3g}{after}"
        for before, value, after in (
            ("", estimate.value, ""),
            ("(", estimate.low, " to"),
            ("", estimate.high, ")"),
        )
    )
