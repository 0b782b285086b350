"""When a stage of a pipeline computes and when it waits, as a lap records it."""

from dataclasses import dataclass
from typing import Literal

from equipoise.number_bounds import FiniteNumber, NonNegativeCount

SpanKind = Literal["forward", "backward", "wait"]


@dataclass(frozen=True, kw_only=True)
class PipelineSpan:
    """Span of time of a stage in one step: a pass of a micro-batch, or the wait for what a neighbour sends for it."""

    stage: NonNegativeCount
    """number of the stage, from 0"""
    kind: SpanKind
    """forward pass, backward pass or wait"""
    micro: NonNegativeCount
    """position of the micro-batch among those of the step, from 0"""
    start: FiniteNumber
    """seconds since the first stage began the step; stages are set in line where a stage gets its first value"""
    end: FiniteNumber
    """seconds at its end"""
