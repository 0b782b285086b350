"""Largest batch whose memory fits in a limit, known before it is tried."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.planning.memory.worker_memory import predict_worker_memory

MEMORY_MARGIN = 0.2
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

    def predict(batch_size: int) -> float:
        return predict_worker_memory(sizes, replace(config, batch_size=batch_size), has_gpu=has_gpu).total

    known = max(measured_peaks, default=None)
    shift = measured_peaks[known] - predict(known) if known else 0.0
    return bisect_largest(lambda batch_size: predict(batch_size) + shift <= limit_bytes * (1 - margin))


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


def extrapolate_peak(peaks: Mapping[int, int], batch_size: int) -> float | None:
    """Return the peak at a larger batch size, along the line through the two largest measured; None without two."""
    if len(peaks) < 2 or batch_size <= max(peaks):
        return None
    smaller, larger = sorted(peaks)[-2:]
    slope = max(0.0, (peaks[larger] - peaks[smaller]) / (larger - smaller))
    return peaks[larger] + slope * (batch_size - larger)
