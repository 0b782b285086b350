"""Panel of the memory of a worker over its batch, around that of a profiled run."""

from dashboards.page import Panel, Table
from dashboards.panels.sharding.worker_memory import (
    MEMORY_COLUMNS,
    find_highest,
    list_memory_cells,
    worker_memory_figure,
)
from equipoise.planning.memory.memory_limit import format_memory
from equipoise.planning.sharding.memory_report import MemoryReport, WayMemory
from equipoise.profiling.memory.step_memory import StepMemory

MAX_LIMIT_RATIO = 2  # of a limit that is drawn to the highest bar: beyond, the bars would be too low to read
READING_OF_MEMORY = (
    "Each hollow bar is the largest moment of a step of one worker, predicted part by part from passes of two small"
    " batches: weights, gradients beside the activations, the state of the optimizer, activations, and buffers (copies"
    " of gradients, gathered weights, batches that are ready). Filled marks were measured, at the batch of the run and"
    " at smaller ones. A dashed line is the memory that is available to a worker, unless that is more than"
    " twice the highest bar."
)


def build_step_memory_panel(memory: StepMemory) -> Panel:
    """Build the panel of the memory of a worker."""
    available = memory.available_bytes
    rows = [list_memory_cells(each, available) for each in memory.rows]
    drawn = MemoryReport(limit_bytes=available, ways=(WayMemory(exchange="", workers=1, rows=memory.rows),))
    return Panel(
        name="memory",
        figure=worker_memory_figure(drawn, has_limit=available <= MAX_LIMIT_RATIO * find_highest(memory.rows)),
        caption=f"Memory of a worker by part over its batch; {format_memory(available)} are available to it.",
        reading=READING_OF_MEMORY,
        data_table=Table(name="memory-parts", columns=MEMORY_COLUMNS, rows=rows),
    )


def describe_step_memory(memory: StepMemory, batch_size: int) -> str:
    """Return in words what the batch of a run takes, and the largest batch that is predicted to fit."""
    own = next(row for row in memory.rows if row.batch == batch_size)
    taken = format_memory(own.measured_bytes or own.total)
    fits = f"a batch of up to {memory.largest_batch:,} is predicted to fit in" if memory.largest_batch else "none fits"
    end = f" {format_memory(memory.available_bytes)}" if memory.largest_batch else " in the memory that is available"
    return f"a worker takes {taken} at its batch of {batch_size:,}, and {fits}{end}"
