"""Panels of one worker beside several that share its batch: seconds per example, and the parts of their step."""

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.theme import (
    BLUE,
    NEUTRAL_COLOR,
    ORANGE,
    apply_theme,
    format_seconds,
    format_significant,
    set_log_axis,
)
from equipoise.formatting import format_share, pluralize
from equipoise.planning.device_comparison.comparison_report import BatchTimings, DeviceComparison

EXAMPLE_MICROSECONDS = 1e6
READING_OF_CURVES = (
    "Lower is faster. Filled marks were measured, hollow ones on the dotted line predicted from steps without an"
    " exchange and the exchange by itself. Where the line of several workers lies above that of one, they take longer"
    " for the same examples; the vertical line is where they cross."
)
READING_OF_SHARES = (
    "Share of a step of several workers that the exchange of gradients takes beyond the backward pass. It falls with"
    " the batch, as the exchange takes the same time however many examples a step has."
)


def curves_figure(comparison: DeviceComparison) -> go.Figure:
    """Draw the seconds per example of one worker and of several over the batch, with their crossing."""
    figure, rows = go.Figure(), comparison.rows
    batches = [row.batch for row in rows]
    several = pluralize(comparison.workers, "worker")
    one = [row.one_seconds / row.batch * EXAMPLE_MICROSECONDS for row in rows]
    predicted = [row.predicted.seconds / row.batch * EXAMPLE_MICROSECONDS for row in rows]
    measured = [row.measured.seconds / row.batch * EXAMPLE_MICROSECONDS for row in rows if row.measured]
    add_curve(figure, batches, one, "1 worker", color=BLUE, symbol="circle", dash="solid")
    add_curve(figure, batches, predicted, f"{several}, predicted", color=ORANGE, symbol="square-open", dash="dot")
    if measured:
        add_curve(figure, batches, measured, f"{several}, measured", color=ORANGE, symbol="square", dash="solid")
    if comparison.crossing.batch:
        figure.add_vline(comparison.crossing.batch.value, line_dash="dash", line_color=NEUTRAL_COLOR)
    set_log_axis(figure, "x", batches, "batch, examples of all workers")
    set_log_axis(figure, "y", [*one, *predicted, *measured], "microseconds per example")
    return apply_theme(figure)


def add_curve(
    figure: go.Figure, batches: list[int], values: list[float], name: str, *, color: str, symbol: str, dash: str
) -> None:
    """Add a line with marks over the batch."""
    figure.add_scatter(
        x=batches,
        y=values,
        mode="lines+markers",
        line={"color": color, "dash": dash},
        marker={"symbol": symbol, "size": 9},
        hovertemplate="%{x:,}: %{y:,.3~r} us",
        name=name,
    )


def exchange_figure(comparison: DeviceComparison) -> go.Figure:
    """Draw the share of the exchange in a step of several workers over the batch."""
    figure, rows = go.Figure(), comparison.rows
    batches = [row.batch for row in rows]
    shares = [100 * row.predicted.exchange_share for row in rows]
    add_curve(figure, batches, shares, "predicted", color=ORANGE, symbol="square-open", dash="dot")
    if measured := [100 * row.measured.exchange_share for row in rows if row.measured]:
        add_curve(figure, batches, measured, "measured", color=ORANGE, symbol="square", dash="solid")
    figure.update_traces(hovertemplate="%{x:,}: %{y:.3~r} %")
    set_log_axis(figure, "x", batches, "batch, examples of all workers")
    figure.update_yaxes(title_text="exchange, % of a step", rangemode="tozero")
    return apply_theme(figure)


def build_device_panels(comparison: DeviceComparison) -> list[Panel]:
    """Build the panels of seconds per example and of the share of the exchange."""
    several = pluralize(comparison.workers, "worker")
    return [
        Panel(
            name="device-curves",
            figure=curves_figure(comparison),
            caption=f"Time of an example on one worker and on {several} that share its batch.",
            reading=READING_OF_CURVES,
            data_table=comparison_table(comparison),
        ),
        Panel(
            name="exchange-share",
            figure=exchange_figure(comparison),
            caption=f"Share of the exchange in a step of {several}.",
            reading=READING_OF_SHARES,
        ),
    ]


def comparison_table(comparison: DeviceComparison) -> Table:
    """Return the seconds of a step at each batch as a table."""
    several = pluralize(comparison.workers, "worker")
    columns = ["batch", "1 worker, a step", f"{several}, predicted", "measured", "times as long", "exchange"]
    return Table(name="device-steps", columns=columns, rows=[list_row_cells(row) for row in comparison.rows])


def list_row_cells(row: BatchTimings) -> list[TableCell]:
    """List the cells of one batch."""
    steps = row.shared_steps
    measured = row.measured.seconds if row.measured else None
    ratio = steps.seconds / row.one_seconds
    return [
        row.batch,
        NumberCell(row.one_seconds, format_seconds(row.one_seconds)),
        NumberCell(row.predicted.seconds, format_seconds(row.predicted.seconds)),
        NumberCell(measured, format_seconds(measured)),
        NumberCell(ratio, format_significant(ratio)),
        NumberCell(steps.exchange_share, format_share(steps.exchange_share)),
    ]
