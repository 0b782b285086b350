"""Memory of the workers of a made-up sweep with a limit."""

from equipoise.planning.memory.memory_at_batch import MemoryAtBatch
from equipoise.planning.sharding.memory_report import MemoryReport, WayMemory

LIMIT_BYTES = 2e9


def build_rows(share: float, measured: bool) -> tuple[MemoryAtBatch, ...]:
    """Return the memory at four batches; the two smallest were measured."""
    return tuple(
        MemoryAtBatch(
            batch=batch,
            weights=4e8 * share,
            gradients=4e8 * share,
            moments=8e8 * share,
            activations=2e7 * batch,
            buffers=1e8,
            measured_bytes=1.6e9 * share + 1e8 + 2.1e7 * batch if measured and batch < 16 else None,
        )
        for batch in (4, 8, 16, 32)
    )


def build_memory_report() -> MemoryReport:
    """Return the memory of whole models, and of the sharding of a plan."""
    whole = WayMemory(exchange="", workers=4, rows=build_rows(1.0, measured=True))
    full = WayMemory(exchange="full", workers=4, rows=build_rows(0.25, measured=False))
    return MemoryReport(limit_bytes=LIMIT_BYTES, ways=(whole, full))
