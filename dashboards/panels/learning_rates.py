"""Panel of the learning rates tried at each batch size of a sweep."""

import pandas as pd
import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table
from dashboards.panels.tick_labels import label_batches
from dashboards.plan_tables import lr_ratios, mark_best_lr
from dashboards.theme import BLUE, NEUTRAL_COLOR, apply_theme, format_significant, set_log_axis
from equipoise.formatting import pluralize

READING_OF_RATES = (
    "Each mark is a learning rate that was tried at a batch size; blue is the one with the fewest examples to the"
    " target. A filled blue mark lies between rates that were tried; a hollow one is the lowest or highest rate tried,"
    " so that a better one may lie beyond it. A cross never reached the target."
)


def lr_figure(trials: pd.DataFrame) -> go.Figure:
    """Draw the learning rates tried at each batch; a line joins the best, hollow where no rate beyond it was tried."""
    table, figure = lr_ratios(trials), go.Figure()
    is_best = table.best & (table.reached > 0)
    tried, best = table[~is_best], table[is_best]
    figure.add_scatter(
        x=tried.global_batch,
        y=tried.lr,
        mode="markers",
        marker={
            "color": NEUTRAL_COLOR,
            "size": 7,
            "symbol": ["circle" if reached > 0 else "x" for reached in tried.reached],
        },
        text=[format_lr_hover(*row) for row in zip(tried.more, tried.reached, tried.trials, strict=True)],
        name="tried",
    )
    figure.add_scatter(
        x=best.global_batch,
        y=best.lr,
        mode="lines+markers",
        line_color=BLUE,
        marker={"size": 11, "symbol": ["circle" if inside else "circle-open" for inside in best.inside]},
        text=[
            "lower and higher rates were tried" if inside else "the lowest or highest rate tried"
            for inside in best.inside
        ],
        name="best",
    )
    label_batches(figure, {*table.global_batch}, "global batch, examples")
    set_log_axis(figure, "y", table.lr, "learning rate")
    return apply_theme(figure)


def format_lr_hover(examples_ratio: float, reached: float, trials: int) -> str:
    """Return the hover text of a learning rate that is not the best of its batch."""
    if not reached:
        return f"{pluralize(trials, 'trial')}, none reached the target"
    return (
        f"{examples_ratio:.2f} times the examples of the best rate"
        f" ({pluralize(trials, 'trial')}, {reached:.0%} reached the target)"
    )


def build_lr_panel(trials: pd.DataFrame) -> Panel | None:
    """Build the panel of learning rates; None if no trial names one."""
    if not (pd.to_numeric(trials.lr, errors="coerce") > 0).any():
        return None
    caption = "The best learning rate of each batch; hollow where it is the lowest or highest rate tried."
    return Panel(
        name="rates",
        figure=lr_figure(trials),
        caption=caption,
        reading=READING_OF_RATES,
        data_table=trials_table(trials),
    )


def trials_table(trials: pd.DataFrame) -> Table:
    """Return the table of finished trials, the one with the fewest examples to the target first."""
    ordered = mark_best_lr(trials).assign(short=lambda table: 1 - table.reached).sort_values(["short", "examples"])
    rows = [
        [
            *(batch, NumberCell(lr, format_significant(lr)), str(seed), NumberCell(examples, f"{examples:,.0f}")),
            *("yes" if reached else "no", "yes" if best else "no"),
        ]
        for batch, lr, seed, examples, reached, best in ordered[
            ["global_batch", "lr", "seed", "examples", "reached", "best"]
        ].itertuples(index=False, name=None)
    ]
    columns = ["global batch", "lr", "seed", "examples", "reached the target", "best lr of its batch"]
    return Table(name="rates-trials", columns=columns, rows=rows)
