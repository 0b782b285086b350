"""When a stage of a pipeline computes and when it waits."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from equipoise.training.step_timer import TimeMark, elapsed_event_seconds

SpanKind = Literal["forward", "backward", "wait"]


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


def measure_bubble(spans: Iterable[StageSpan]) -> float:
    """Return the share of a step in which a stage computes no pass, from the first span's start to the last one's end.

    At best it is (S - 1) / (M + S - 1) for S equal stages and M micro-batches, whichever the schedule.
    """
    spans = list(spans)
    total = max(span.end for span in spans) - min(span.start for span in spans)
    return 1 - sum(span.end - span.start for span in spans if span.kind != "wait") / total if total else 0.0
