"""When a stage of a pipeline computes and when it waits."""

from collections.abc import Sequence
from typing import NamedTuple, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.runs.pipeline_span import PipelineSpan, SpanKind
from equipoise.training.step_timer import TimeMark, elapsed_event_seconds

KINDS: tuple[SpanKind, ...] = get_args(SpanKind)
MAX_SPANS_PER_MICRO_BATCH = 4  # two passes, and a wait before each


class StageSpan(NamedTuple):
    """Span of time of a stage: a pass of a micro-batch, or the wait for what a neighbour sends for it."""

    start: float
    """seconds since the first span began"""
    end: float
    kind: SpanKind
    micro: int


class MarkedSpan(NamedTuple):
    """Span between two marks of a device's clock."""

    start: TimeMark
    end: TimeMark
    kind: SpanKind
    micro: int


def read_spans(marked: list[MarkedSpan]) -> list[StageSpan]:
    """Return spans in seconds since the first one began; the device has finished its work."""

    def read(mark: TimeMark) -> float:
        first = marked[0].start
        if isinstance(mark, float) and isinstance(first, float):
            return mark - first
        return elapsed_event_seconds(mark, first)  # type: ignore[arg-type]  # both are events of a GPU

    return [StageSpan(read(span.start), read(span.end), span.kind, span.micro) for span in marked]


def gather_spans(
    spans: Sequence[StageSpan], stages: int, micros: int, device: torch.device, group: dist.ProcessGroup
) -> tuple[PipelineSpan, ...]:
    """Return the spans of all stages of a replica, on one clock; its workers call it together."""
    table = torch.full((micros * MAX_SPANS_PER_MICRO_BATCH, 4), -1.0, dtype=torch.float64)
    for row, span in zip(table, spans, strict=False):
        row.copy_(torch.tensor([KINDS.index(span.kind), span.micro, span.start, span.end], dtype=torch.float64))
    tables = [torch.empty_like(table, device=device) for _ in range(stages)]
    dist.all_gather(tables, table.to(device), group=group)
    return align_stages([read_span_rows(part) for part in tables])


def read_span_rows(table: Tensor) -> list[StageSpan]:
    """Return the spans in a table's rows; those of -1 are none."""
    return [
        StageSpan(start, end, KINDS[int(kind)], int(micro))
        for kind, micro, start, end in table.cpu().tolist()
        if kind >= 0
    ]


def align_stages(spans_by_stage: Sequence[Sequence[StageSpan]]) -> tuple[PipelineSpan, ...]:
    """Return the spans of all stages on the clock of the first, as machines have clocks of their own.

    A stage gets its first value when the stage before has computed it, as far as the way takes no time.
    """
    aligned: list[PipelineSpan] = []
    arrival = 0.0
    for stage, spans in enumerate(spans_by_stage):
        first = next((span for span in spans if span.kind == "forward"), None)
        if first is None:
            return ()
        offset = arrival - first.start
        aligned += [
            PipelineSpan(
                stage=stage, kind=span.kind, micro=span.micro, start=span.start + offset, end=span.end + offset
            )
            for span in spans
        ]
        arrival = first.end + offset
    return tuple(aligned)
