"""Memory of a worker at one batch by the parts that pages show, predicted and measured."""

from dataclasses import dataclass

from equipoise.number_bounds import Count, NonNegativeNumber
from equipoise.planning.memory.worker_memory import WorkerMemory


@dataclass(frozen=True, kw_only=True)
class MemoryAtBatch:
    """Bytes of a worker at one batch, in the largest moment of a step."""

    batch: Count
    """examples per worker and step"""
    weights: NonNegativeNumber
    """parameters and buffers of the model that the worker holds"""
    gradients: NonNegativeNumber
    """gradients beside activations"""
    moments: NonNegativeNumber
    """state of the optimizer"""
    activations: NonNegativeNumber
    """what forward and backward passes take"""
    buffers: NonNegativeNumber
    """copies of gradients, gathered weights, and batches that are ready"""
    measured_bytes: NonNegativeNumber | None = None
    """largest sum of all of them that was measured; None where it was not"""

    @property
    def total(self) -> float:
        """Predicted bytes of all parts."""
        return self.weights + self.gradients + self.moments + self.activations + self.buffers


def describe_memory(batch: int, memory: WorkerMemory, measured_bytes: float | None) -> MemoryAtBatch:
    """Return the memory of a worker at a batch by the parts that a page shows."""
    return MemoryAtBatch(
        batch=batch,
        weights=memory.weights,
        gradients=memory.gradients,
        moments=memory.moments,
        activations=memory.activations,
        buffers=memory.total - memory.weights - memory.gradients - memory.moments - memory.activations,
        measured_bytes=measured_bytes,
    )
