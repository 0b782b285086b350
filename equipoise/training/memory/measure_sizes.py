"""Sizes of a model and of its passes, measured at two small batch sizes, for predictions of memory."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.training.dataloader import BatchLoader
from equipoise.training.finetune import freeze_stages
from equipoise.training.initialization.shared_model import build_shared_model
from equipoise.training.memory.measure_pass import MeasuredModel, PassBytes, fit_passes
from equipoise.training.memory.recompute import recompute_blocks
from equipoise.training.sharding.full.model_units import list_units
from equipoise.workloads import Workload
from equipoise.workloads.batch import list_tensors

if TYPE_CHECKING:
    from equipoise.training.sharding.pipeline.stage_cut import StageBoundary

BATCH_SIZES = 4, 8
"""batches of both passes; batch normalisation needs more than one example"""
MIN_PASS_BYTES = 1 << 20
"""peak of a pass below which both batches are doubled: what kernels take besides shows in small ones"""
MAX_BATCH_SIZE = 64


def measure_model_sizes(
    config: TrainConfig,
    workload: Workload,
    device: torch.device,
    boundaries: Sequence["StageBoundary"] | None = None,
) -> ModelSizes:
    """Build the model of a run, pass small batches through it, and return its sizes.

    Where its options divide layers, the sizes of what each worker computes are measured too. A pipeline is cut at
    `boundaries`, or else by the times of its pieces here, which may be another cut than that of a run.
    """
    config = config.with_defaults(workload.defaults)
    model = build_shared_model(config, workload, device, workers=1).model
    frozen = freeze_stages(model, config.freeze_stages)
    unit_bytes = [count_bytes(unit.parameters()) for unit in list_units(model)]
    if config.recompute:
        recompute_blocks(config, model)
    model.train()
    for module in frozen:
        module.eval()
    measured = MeasuredModel(config=config, workload=workload, model=model, device=device)
    passes = measure_small_passes(measured)
    weights = count_weights(model.parameters(), model.buffers())
    sizes = ModelSizes(
        **weights,
        largest_unit_bytes=max([*unit_bytes, weights["parameter_bytes"] - sum(unit_bytes)]),
        example_bytes=count_bytes(list_tensors(measured.load_batch(1))),
        input_bytes=BatchLoader(config, workload, device).input_bytes,
        **fit_passes(passes),
    )
    if not config.sharding_method.splits_layers:
        return sizes
    from equipoise.training.memory.measure_parts import measure_parts  # others divide no layers

    return replace(
        sizes, parts=measure_parts(measured, sizes, list(passes), boundaries), parts_sharding=config.sharding
    )


def measure_small_passes(measured: MeasuredModel) -> dict[int, PassBytes]:
    """Return the bytes of passes by batch size, of two sizes whose passes are no smaller than they need to be."""
    small, large = BATCH_SIZES
    passes = {size: measured.measure(size) for size in BATCH_SIZES}
    while passes[large].peak < MIN_PASS_BYTES and large < MAX_BATCH_SIZE:
        small, large = large, 2 * large
        passes = {small: passes[small], large: measured.measure(large)}
    return passes


def count_weights(parameters: Iterable[nn.Parameter], buffers: Iterable[Tensor]) -> dict[str, Any]:
    """Return the bytes of weights as fields of `ModelSizes`."""
    parameters = list(parameters)
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    return {
        "parameter_bytes": count_bytes(parameters),
        "trainable_bytes": count_bytes(trainable),
        "buffer_bytes": count_bytes(buffers),
        "factored_bytes": sum(factored_state_bytes(parameter) for parameter in trainable),
    }


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def factored_state_bytes(parameter: Tensor) -> int:
    """Return the bytes of Adafactor's state: a sum for each row and column of a matrix, else one for each number."""
    if parameter.ndim < 2:
        return parameter.nbytes
    return parameter.nbytes // parameter.shape[-1] + parameter.nbytes // parameter.shape[-2]
