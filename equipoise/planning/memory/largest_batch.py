"""Largest batch whose memory fits in a limit, known before it is tried."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import predict_worker_memory

MEMORY_MARGIN = 0.15
"""share of the limit that is left: on a CPU the heap has gaps between allocations, which grow over a few steps"""
MAX_BATCH_SIZE = 1 << 30


def find_largest_batch(
    sizes: ModelSizes,
    config: TrainConfig,
    limit_bytes: float,
    *,
    measured_peaks: Mapping[int, float] = {},  # never changed
    margin: float = MEMORY_MARGIN,
    has_gpu: bool = False,
) -> int:
    """Return the largest batch size of a worker that fits in `limit_bytes`, or 0 if not even one example does.

    The closed form is moved up or down to the measured peak of the largest batch in `measured_peaks`.
    """

    def fits(batch_size: int) -> bool:
        at_batch = replace(config, batch_size=batch_size)
        return predict_peak(sizes, at_batch, measured_peaks, has_gpu=has_gpu) <= limit_bytes * (1 - margin)

    return bisect_largest(fits)


def predict_peak(
    sizes: ModelSizes, config: TrainConfig, measured_peaks: Mapping[int, float], *, has_gpu: bool = False
) -> float:
    """Return the peak bytes of a worker, by what the closed form adds to the measured peak of the largest batch."""
    predicted = predict_worker_memory(sizes, config, has_gpu=has_gpu).total
    known = max(measured_peaks, default=None)
    if known is None:
        return predicted
    at_known = replace(config, batch_size=known)
    return predicted + measured_peaks[known] - predict_worker_memory(sizes, at_known, has_gpu=has_gpu).total


def bisect_largest(fits: Callable[[int], bool]) -> int:
    """Return the largest batch size that fits, where all smaller ones do; 0 for none."""
    high = 1
    while high <= MAX_BATCH_SIZE and fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
