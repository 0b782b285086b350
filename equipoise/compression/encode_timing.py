"""Seconds that a compression costs a worker in each exchange, measured on this machine without a network."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from equipoise.compression.build_encoded_sum import build_encoded_sum
from equipoise.compression.low_rank_sum import LowRankSum
from equipoise.compression.worker_layout import WorkerLayout, exchange_chunks
from equipoise.registries.exchange_registry import CompressionMethod

WARM_UP_ROUNDS = 2  # first uses of buffers and kernels
MIN_ROUNDS, MAX_ROUNDS = 5, 50
TIMING_SECONDS = 0.5  # of all rounds, unless the fewest take longer


def time_encoding(tensors: Sequence[Tensor], method: CompressionMethod, seconds: float = TIMING_SECONDS) -> float:
    """Return the median seconds to encode gradients like `tensors`, such as the parameters of a model, and to decode.

    With several workers each one decodes as many numbers as one alone does, but for topk, where it adds what all of
    them send.
    """
    if method.kind == "none" or not tensors:
        return 0.0
    run_round = build_round(tensors, method)
    device = tensors[0].device
    for _ in range(WARM_UP_ROUNDS):
        took = time_round(run_round, device)
    rounds = min(MAX_ROUNDS, max(MIN_ROUNDS, int(seconds / max(took, 1e-6))))
    return statistics.median(time_round(run_round, device) for _ in range(rounds))


def build_round(tensors: Sequence[Tensor], method: CompressionMethod) -> Callable[[], object]:
    """Build a function that encodes and decodes random gradients as one worker does."""
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(tensor.shape, generator=generator).to(tensor) for tensor in tensors]
    if method.kind == "powersgd":
        return partial(run_low_rank_round, LowRankSum(gradients, int(method.amount)), gradients)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    encoded_sum = build_encoded_sum(method, WorkerLayout(1), flat)

    def encode_and_decode() -> None:
        encoded_sum.encode_worker(0, flat)
        encoded_sum.sum_over_workers(exchange_chunks)

    return encode_and_decode


def run_low_rank_round(low_rank_sum: LowRankSum, gradients: Sequence[Tensor]) -> None:
    """Encode and decode gradients by PowerSGD."""
    low_rank_sum.start(gradients)
    low_rank_sum.project()
    low_rank_sum.finish()


def time_round(run_round: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a round, until its device has finished."""
    wait_for_device(device)
    start = time.perf_counter()
    run_round()
    wait_for_device(device)
    return time.perf_counter() - start


def wait_for_device(device: torch.device) -> None:
    """Wait for what a GPU has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
