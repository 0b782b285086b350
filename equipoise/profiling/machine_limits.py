"""Rates that a worker reaches at best on its own device: of a matrix product, and of a copy in memory."""

import time
from collections.abc import Callable

import torch

from equipoise.profiling.profile_report import MachineLimits

PRODUCT_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
MATRIX_SIDES = {"cpu": 768, "cuda": 8192}  # so large that a product takes much longer than its call
COPIED_BYTES = {"cpu": 1 << 26, "cuda": 1 << 29}  # so large that no cache holds them
LIMIT_SECONDS = 0.4  # for each of the two rates
MIN_BLOCKS = 3


def measure_machine_limits(precision: str, device: torch.device) -> MachineLimits:
    """Measure both rates with the threads of this process; they are the best of short blocks."""
    side, size = MATRIX_SIDES[device.type], COPIED_BYTES[device.type]
    left, right = (torch.rand(side, side, device=device).to(PRODUCT_DTYPES[precision]) for _ in range(2))
    product = torch.empty_like(left)
    source, copy = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    product_seconds = time_best(lambda: torch.mm(left, right, out=product), device)
    copy_seconds = time_best(lambda: copy.copy_(source), device)
    return MachineLimits(flop_per_second=2 * side**3 / product_seconds, bytes_per_second=2 * size / copy_seconds)


def measure_limits_within_memory(precision: str, device: torch.device) -> MachineLimits | None:
    """Measure both rates beside a training that goes on; None on a GPU without twice the free memory that it takes."""
    if device.type == "cuda":
        side, size = MATRIX_SIDES[device.type], COPIED_BYTES[device.type]
        needed = 2 * size + 3 * side**2 * PRODUCT_DTYPES[precision].itemsize
        if torch.cuda.mem_get_info(device)[0] < 2 * needed:
            return None
    return measure_machine_limits(precision, device)


def time_best(run: Callable[[], object], device: torch.device) -> float:
    """Return the shortest seconds of a call that is repeated for a while."""
    shortest, blocks, start = float("inf"), 0, time.perf_counter()
    while blocks < MIN_BLOCKS or time.perf_counter() - start < LIMIT_SECONDS:
        wait_for_device(device)
        began = time.perf_counter()
        run()
        wait_for_device(device)
        shortest = min(shortest, time.perf_counter() - began)
        blocks += 1
    return shortest


def wait_for_device(device: torch.device) -> None:
    """Wait until a GPU has done what it was given; a CPU has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
