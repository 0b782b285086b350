"""Panel of the memory of a worker by part over its batch, against the limit of a sweep."""

from collections.abc import Iterable

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.theme import AMBER, BLUE, GREEN, NEUTRAL_COLOR, PURPLE, SKY, apply_theme, series_symbol
from equipoise.planning.memory.memory_at_batch import MemoryAtBatch
from equipoise.planning.memory.memory_limit import format_memory
from equipoise.planning.sharding.memory_report import MemoryReport

MEMORY_PART_COLORS = {
    "weights": BLUE,
    "gradients": AMBER,
    "moments": GREEN,
    "activations": SKY,
    "buffers": PURPLE,
}
MEMORY_COLUMNS = ("batch", *MEMORY_PART_COLORS, "predicted", "measured", "fits")
GIGABYTE, MEGABYTE = 1e9, 1e6
OUTLINE_PIXELS = 2
READING_OF_MEMORY = (
    "Each hollow bar is the largest moment of a step of one worker, predicted part by part from passes of two small"
    " batches: weights, gradients beside the activations, the state of the optimizer, activations, and buffers (copies"
    " of gradients, gathered weights, batches that are ready). Filled marks were measured while steps were timed. The"
    " dashed line is the limit that the sweep was given: bars above it do not fit."
)


def worker_memory_figure(report: MemoryReport, *, has_limit: bool = True) -> go.Figure:
    """Draw the predicted parts as hollow stacked bars by batch, a row for each way of exchange, and measured peaks."""
    ways = report.ways
    unit, name = choose_memory_unit(report)
    figure = make_subplots(rows=len(ways), shared_xaxes=True, vertical_spacing=0.15 / max(len(ways), 2))
    for row, way in enumerate(ways, 1):
        batches = [f"{each.batch:,}" for each in way.rows]
        for part, color in MEMORY_PART_COLORS.items():
            sizes = [getattr(each, part) for each in way.rows]
            figure.add_bar(
                x=batches,
                y=[size / unit for size in sizes],
                marker={"color": "rgba(0,0,0,0)", "line": {"color": color, "width": OUTLINE_PIXELS}},
                name=part,
                legendgroup=part,
                showlegend=row == 1,
                text=[format_memory(size) for size in sizes],
                textposition="none",
                hovertemplate="%{text} predicted",
                row=row,
                col=1,
            )
        add_measured_marks(figure, way.rows, unit, row)
        if has_limit:
            figure.add_hline(report.limit_bytes / unit, line_dash="dash", line_color=NEUTRAL_COLOR, row=row, col=1)
        title = f"{way.title}<br>{name} a worker" if len(ways) > 1 else f"{name} a worker"
        figure.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text="batch size per worker, examples", row=len(ways), col=1)
    batches = [f"{batch:,}" for batch in sorted({each.batch for way in ways for each in way.rows})]
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=batches)
    return apply_theme(figure, 140 + 220 * len(ways)).update_layout(barmode="stack")


def add_measured_marks(figure: go.Figure, rows: tuple[MemoryAtBatch, ...], unit: float, row: int) -> None:
    """Add a filled mark at each batch whose memory was measured."""
    measured = [(f"{each.batch:,}", each.measured_bytes) for each in rows if each.measured_bytes is not None]
    if not measured:
        return
    figure.add_scatter(
        x=[batch for batch, _ in measured],
        y=[size / unit for _, size in measured],
        mode="markers",
        marker={"symbol": series_symbol(0), "color": NEUTRAL_COLOR, "size": 9},
        name="measured",
        text=[format_memory(size) for _, size in measured],
        hovertemplate="%{text} measured",
        row=row,
        col=1,
    )


def choose_memory_unit(report: MemoryReport) -> tuple[float, str]:
    """Return the bytes of the unit in which the highest bar is at least 1, with its name."""
    highest = find_highest(row for way in report.ways for row in way.rows)
    return (GIGABYTE, "GB") if highest >= GIGABYTE else (MEGABYTE, "MB")


def find_highest(rows: Iterable[MemoryAtBatch]) -> float:
    """Return the largest number of bytes that a figure shows."""
    return max(max(row.total, row.measured_bytes or 0.0) for row in rows)


def build_memory_panel(report: MemoryReport) -> Panel:
    """Build the panel of the memory of a worker."""
    workers = report.ways[0].workers
    caption = (
        f"Memory of each of {workers} workers by part over the batch, under a limit of"
        f" {format_memory(report.limit_bytes)}."
        if workers > 1
        else f"Memory of a worker by part over the batch, under a limit of {format_memory(report.limit_bytes)}."
    )
    rows = [[way.title, *list_memory_cells(each, report.limit_bytes)] for way in report.ways for each in way.rows]
    table = Table(name="memory-parts", columns=["each worker holds", *MEMORY_COLUMNS], rows=rows)
    figure = worker_memory_figure(report)
    return Panel(name="memory", figure=figure, caption=caption, reading=READING_OF_MEMORY, data_table=table)


def list_memory_cells(memory: MemoryAtBatch, limit_bytes: float) -> list[TableCell]:
    """List the cells of the memory at one batch, in the order of `MEMORY_COLUMNS`."""
    measured = memory.measured_bytes
    return [
        memory.batch,
        *(build_memory_cell(getattr(memory, part)) for part in MEMORY_PART_COLORS),
        build_memory_cell(memory.total),
        None if measured is None else build_memory_cell(measured),
        "yes" if (measured or memory.total) <= limit_bytes else "no",
    ]


def build_memory_cell(size: float) -> NumberCell:
    """Return the cell of a number of bytes."""
    return NumberCell(size, format_memory(size) if size else "0")
