"""Model at the start of a run on its device, with the same weights on all workers."""

from dataclasses import replace

import torch
import torch.distributed as dist

from equipoise.config import TrainConfig
from equipoise.training.dataloader import PARAMETER_DTYPES
from equipoise.training.initialization.initial_model import InitialModel, build_initial_model
from equipoise.workloads import Workload


def build_shared_model(config: TrainConfig, workload: Workload, device: torch.device, workers: int) -> InitialModel:
    """Build the initial model on a device, in the dtype and memory format of the options, with worker 0's weights."""
    initial = build_initial_model(config, workload)
    memory_format = torch.channels_last if config.channels_last else torch.preserve_format
    model = initial.model.to(device, PARAMETER_DTYPES[config.precision], memory_format=memory_format)  # type: ignore[call-overload]
    if workers > 1:  # different processors may round the same random draw differently
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, 0)
    return replace(initial, model=model)
