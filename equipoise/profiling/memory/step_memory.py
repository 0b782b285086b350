"""Memory of a worker over its batch, as a profile predicts and measures it."""

from dataclasses import dataclass

from equipoise.number_bounds import NonNegativeCount, PositiveNumber
from equipoise.planning.memory.memory_at_batch import MemoryAtBatch


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Memory of a worker at batches around that of a run."""

    available_bytes: PositiveNumber
    """bytes that the tensors of a worker can take: what is free on its GPU, or its share of what is free on its node"""
    largest_batch: NonNegativeCount
    """largest batch of a worker that is predicted to fit in them, with a margin of 15 %; 0 if none does"""
    rows: tuple[MemoryAtBatch, ...]
    """memory by batch, the smallest first; measured at that of the run and at smaller ones"""
