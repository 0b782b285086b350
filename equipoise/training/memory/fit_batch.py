"""Largest batch of a worker that fits in its memory: predicted from small batches, then confirmed by one try."""

import gc
from dataclasses import replace

import torch

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.memory.largest_batch import MEMORY_MARGIN, find_largest_batch
from equipoise.training.loop import Training
from equipoise.training.memory.measure_sizes import measure_model_sizes
from equipoise.training.memory.out_of_memory import is_out_of_memory
from equipoise.workloads import Workload
from equipoise.workloads.free_memory import find_free_memory


def fit_batch_size(config: TrainConfig, workload: Workload, device: torch.device, margin: float = MEMORY_MARGIN) -> int:
    """Return the largest batch size that fits in the memory of this worker, which is alone on its device."""
    sizes = measure_model_sizes(config, workload, device)
    free_bytes = find_device_memory(device)
    batch_size = find_largest_batch(sizes, config, free_bytes, margin=margin, has_gpu=device.type == "cuda")
    while batch_size:
        if fits_when_tried(replace(config, batch_size=batch_size), workload, device):
            return batch_size
        batch_size = int(batch_size * (1 - margin))
    raise EquipoiseError(
        "memory-exceeded",
        f"the model needs more than the {free_bytes / 1e6:,.0f} MB that are free, even with one example a step",
        "use --recompute or --sharding full, or a smaller --model",
    )


def fits_when_tried(config: TrainConfig, workload: Workload, device: torch.device) -> bool:
    """Return whether a pass of a micro-batch fits in memory, beside weights and moments; leave nothing behind."""
    try:
        return Training(config, workload, device).fits_in_memory()
    except (RuntimeError, MemoryError) as error:  # of weights or moments
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        gc.collect()  # buckets and their parameters refer to each other


def find_device_memory(device: torch.device) -> int:
    """Return the bytes that tensors may still take on a device; on a CPU by the tightest limit of the process."""
    if device.type != "cuda":
        return find_free_memory()
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return free_bytes + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
