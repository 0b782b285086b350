"""Panels of the parts of a step: mean seconds by worker, and a timeline of two traced steps."""

import plotly.graph_objects as go

from dashboards.page import NumberCell, Panel, Table, TableCell
from dashboards.theme import AMBER, BLUE, GREEN, NEUTRAL_COLOR, ORANGE, PURPLE, SKY, apply_theme, format_seconds
from equipoise.profiling.profile_report import ProfileReport, StepParts

PART_COLORS = {
    "data": GREEN,
    "forward": SKY,
    "backward": BLUE,
    "optimizer": PURPLE,
    "sync": AMBER,
    "exchange": ORANGE,
    "other": NEUTRAL_COLOR,
}
PART_NAMES = {
    "data": "waiting for batches",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "sync": "synchronisation points",
    "exchange": "waiting for the exchange",
    "other": "other",
}
READING_OF_PARTS = (
    "One bar for each worker: the mean seconds of a step without the profiler, split by marks. The exchange that the"
    " backward pass hides is in no part; the table has it. A worker with a long wait for the exchange beside one with"
    " none is waiting for that one rather than for the network."
)
READING_OF_TIMELINE = (
    "Two steps under the profiler, which makes them longer. Each worker has a row for its own thread and one for the"
    " sums that run beside it; where both rows are filled, the exchange is hidden. The file for Perfetto has every"
    " operation of the first worker."
)
BAR_ROW_PIXELS = 34
FRAME_PIXELS = 120


def step_parts_figure(report: ProfileReport) -> go.Figure:
    """Draw the parts of a step as one bar for each worker."""
    figure = go.Figure()
    workers = [f"worker {index}" for index in range(len(report.steps.parts))]
    for part, name in PART_NAMES.items():
        milliseconds = [1000 * getattr(parts, part) for parts in report.steps.parts]
        if any(milliseconds):
            figure.add_bar(
                y=workers,
                x=milliseconds,
                orientation="h",
                name=name,
                marker={"color": PART_COLORS[part], "line_width": 0},
                hovertemplate="%{x:,.3~r} ms",
            )
    figure.update_xaxes(title_text="ms per step")
    figure.update_yaxes(autorange="reversed")
    height = FRAME_PIXELS + BAR_ROW_PIXELS * len(workers)
    return apply_theme(figure, height).update_layout(barmode="stack", legend={"traceorder": "normal"})


def timeline_figure(report: ProfileReport) -> go.Figure:
    """Draw the parts of the traced steps over time, with a row for the exchange of each worker."""
    figure = go.Figure()
    for part in ("data", "forward", "backward", "exchange"):
        spans = [span for span in report.timeline if span.part == part]
        if not spans:
            continue
        suffix = ", exchange" if part == "exchange" else ""
        figure.add_bar(
            y=[f"worker {span.worker}{suffix}" for span in spans],
            x=[1000 * span.seconds for span in spans],
            base=[1000 * span.start for span in spans],
            orientation="h",
            name="exchange" if part == "exchange" else PART_NAMES[part],
            marker={"color": PART_COLORS[part], "line_width": 0},
            hovertemplate="%{x:,.3~r} ms",
        )
    rows = sorted({(span.worker, span.part == "exchange") for span in report.timeline})
    order = [f"worker {worker}{', exchange' * is_exchange}" for worker, is_exchange in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=order, autorange="reversed")
    figure.update_xaxes(title_text="ms since the first of these steps")
    return apply_theme(figure, FRAME_PIXELS + BAR_ROW_PIXELS * len(rows)).update_layout(barmode="overlay")


def build_step_parts_panel(report: ProfileReport) -> Panel:
    """Build the panel of the parts of a step."""
    return Panel(
        name="step-parts",
        figure=step_parts_figure(report),
        caption="Mean milliseconds of a step by part and worker, measured without the profiler.",
        reading=READING_OF_PARTS,
        data_table=step_parts_table(report),
    )


def build_timeline_panel(report: ProfileReport) -> Panel:
    """Build the panel of the timeline of two steps."""
    return Panel(
        name="timeline",
        figure=timeline_figure(report),
        caption="Two traced steps on each worker: what its own thread does, and the sums that run beside it.",
        reading=READING_OF_TIMELINE,
    )


def step_parts_table(report: ProfileReport) -> Table:
    """Return the parts of a step on each worker as a table."""
    rows = [list_part_cells(index, parts) for index, parts in enumerate(report.steps.parts)]
    columns = ["worker", "step", *PART_NAMES.values(), "exchange hidden by backward"]
    return Table(name="step-parts-table", columns=columns, rows=rows)


def list_part_cells(index: int, parts: StepParts) -> list[TableCell]:
    """List the cells of one worker's parts."""
    values = [parts.seconds, *(getattr(parts, part) for part in PART_NAMES), parts.hidden_exchange]
    return [index, *(NumberCell(value, format_seconds(value)) for value in values)]
