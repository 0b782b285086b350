"""Predict the memory of a worker at batches around that of a run, and measure it at those that are no larger."""

from dataclasses import replace

import torch

from equipoise.config import TrainConfig
from equipoise.planning.memory.largest_batch import find_largest_batch
from equipoise.planning.memory.memory_at_batch import describe_memory
from equipoise.planning.memory.worker_memory import predict_worker_memory
from equipoise.profiling.memory.step_memory import StepMemory
from equipoise.profiling.stepped_training import SteppedTraining, gather_rows
from equipoise.training.memory.fit_batch import find_device_memory
from equipoise.training.memory.measure_sizes import measure_model_sizes
from equipoise.training.torch_state import flush_denormals
from equipoise.workloads import Workload

BATCH_RATIOS = (0.25, 0.5, 1, 2, 4)
"""batches over that of the run"""
MEASURED_INTERVALS = 2  # on a GPU, whose first step has no state of the optimizer yet


def measure_step_memory(config: TrainConfig, workload: Workload, device: torch.device, nodes: int) -> StepMemory:
    """Return the memory of a worker over its batch. All workers of a run with all its defaults call this."""
    available_bytes = share_memory(find_device_memory(device), config.workers, nodes, device)
    sizes = measure_model_sizes(config, workload, device)
    has_gpu = device.type == "cuda"
    rows = []
    for batch in sorted({max(1, int(ratio * config.batch_size)) for ratio in BATCH_RATIOS}):
        at_batch = replace(config, batch_size=batch)
        # batch normalisation refuses a single example, and each batch would be compiled anew
        is_measured = 1 < batch <= config.batch_size and not config.compile
        measured = measure_peak_bytes(at_batch, workload, device) if is_measured else None
        rows.append(describe_memory(batch, predict_worker_memory(sizes, at_batch, has_gpu=has_gpu), measured))
    largest = find_largest_batch(sizes, config, available_bytes, has_gpu=has_gpu)
    return StepMemory(available_bytes=available_bytes, largest_batch=largest, rows=tuple(rows))


def share_memory(free_bytes: int, workers: int, nodes: int, device: torch.device) -> float:
    """Return the least that a worker has: on a CPU workers share what is free on their node."""
    sharers = 1 if device.type == "cuda" else -(-workers // nodes)
    return float(min(row[0] for row in gather_rows([free_bytes / sharers], device)))


def measure_peak_bytes(config: TrainConfig, workload: Workload, device: torch.device) -> float | None:
    """Return the peak of the tensors of the worker that needs most in the first steps; None where no meter tells it."""
    taken = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    stepped = SteppedTraining(config, workload, device)
    training, meter = stepped.training, stepped.training.peak_memory
    meter.begin_lap(training.sharded, training.steps, training.kept_weights)
    with flush_denormals():
        meter.take_steps(training.take_steps, MEASURED_INTERVALS * stepped.interval)
    training.timer.gradient_norms.pop_sums()
    training.timer.pop_seconds()
    own = max(0, (meter.bytes or 0) - taken)
    return max(row[0] for row in gather_rows([float(own)], device)) or None
