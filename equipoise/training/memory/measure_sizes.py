"""Sizes of a model and of its passes, measured at two small batch sizes, for predictions of memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from equipoise.config import TrainConfig
from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.finetune import freeze_stages
from equipoise.training.initialization.shared_model import build_shared_model
from equipoise.training.memory.peak_memory import trace_peak
from equipoise.training.memory.recompute import list_blocks, recompute_blocks
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.workloads import Workload
from equipoise.workloads.batch import list_tensors, map_tensors

BATCH_SIZES = 4, 8
"""batches of both passes; batch normalisation needs more than one example"""


def measure_model_sizes(config: TrainConfig, workload: Workload, device: torch.device) -> ModelSizes:
    """Build the model of a run, pass two small batches through it, and return its sizes."""
    config = config.with_defaults(workload.defaults)
    model = build_shared_model(config, workload, device, workers=1).model
    frozen = freeze_stages(model, config.freeze_stages)
    blocks = list_blocks(model)
    units = blocks or [layer for layer in model.modules() if not any(True for _ in layer.children())]
    unit_bytes = [count_bytes(unit.parameters()) for unit in units]
    if config.recompute:
        recompute_blocks(config, model)
    model.train()
    for module in frozen:
        module.eval()
    small, large = BATCH_SIZES
    passes = {size: measure_pass(replace(config, batch_size=size), workload, model, device) for size in BATCH_SIZES}
    slopes = [max(0.0, (b - a) / (large - small)) for a, b in zip(passes[small][:2], passes[large][:2], strict=True)]
    kept, peak = (max(0.0, value - slope * small) for value, slope in zip(passes[small][:2], slopes, strict=True))
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    parameter_bytes = count_bytes(model.parameters())
    return ModelSizes(
        parameter_bytes=parameter_bytes,
        trainable_bytes=count_bytes(trainable),
        buffer_bytes=count_bytes(model.buffers()),
        factored_bytes=sum(factored_state_bytes(parameter) for parameter in trainable),
        largest_unit_bytes=max([*unit_bytes, parameter_bytes - sum(unit_bytes)]),
        divided_bytes=count_divided_bytes(model, config),
        example_bytes=passes[small][2] // small,
        kept_bytes=kept,
        kept_bytes_per_example=slopes[0],
        pass_bytes=peak,
        pass_bytes_per_example=slopes[1],
    )


def measure_pass(
    config: TrainConfig, workload: Workload, model: nn.Module, device: torch.device
) -> tuple[int, int, int]:
    """Return the bytes that a pass keeps for its backward pass, the peak of both, and the bytes of its batch."""
    loader = BatchLoader(config, workload, device)
    batch: InputsAndTargets = map_tensors(next(loader.train_batches(range(1), 0)), torch.clone)
    backward_pass = BackwardPass(replace(config, compile=False), workload, model, device)

    def run() -> None:
        backward_pass.run(*batch, step=0, micro_index=0)

    not_kept = [*model.parameters(), *model.buffers(), *list_tensors(batch)]
    with keep_buffers(model), drop_gradients(model):
        kept = count_saved_bytes(run, not_kept)
        peak = trace_device_peak(run, device)
    return kept, peak, count_bytes(list_tensors(batch))


def trace_device_peak(function: Callable[[], None], device: torch.device) -> int:
    """Call a function and return the peak of what it allocates on a device, above what was there."""
    if device.type != "cuda":
        return trace_peak(function)[1]
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    function()
    return torch.cuda.max_memory_allocated(device) - before


def count_saved_bytes(run: Callable[[], None], not_kept: list[Tensor]) -> int:
    """Return the bytes of the tensors that are saved for the backward pass, each storage once, without `not_kept`."""
    known = {tensor.untyped_storage().data_ptr() for tensor in not_kept}
    saved: dict[int, Tensor] = {}  # kept to the end, or another tensor could take the place in memory of one

    def note(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in known:
            saved.setdefault(address, tensor.detach())
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        run()
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


@contextmanager
def keep_buffers(model: nn.Module) -> Iterator[None]:
    """Give a model its running statistics back at the end."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)


@contextmanager
def drop_gradients(model: nn.Module) -> Iterator[None]:
    """Drop each gradient as soon as it is known, as buckets take them."""

    def drop(parameter: Tensor) -> None:
        parameter.grad = None

    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(drop) for parameter in trainable]
    yield
    for handle in handles:
        handle.remove()


def count_bytes(tensors: Iterator[Tensor] | list[Tensor] | Iterator[nn.Parameter] | list[nn.Parameter]) -> int:
    """Return the bytes of tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def factored_state_bytes(parameter: Tensor) -> int:
    """Return the bytes of Adafactor's state: a sum for each row and column of a matrix, else one for each number."""
    if parameter.ndim < 2:
        return parameter.nbytes
    return parameter.nbytes // parameter.shape[-1] + parameter.nbytes // parameter.shape[-2]


def count_divided_bytes(model: nn.Module, config: TrainConfig) -> int:
    """Return the bytes of the weights that --sharding tensor:K divides."""
    method = config.sharding_method
    if method.kind != "tensor" or not method.group_size:
        return 0
    from equipoise.training.sharding.tensor.tensor_plan import plan_tensor_sharding  # others divide no layers

    return round(plan_tensor_sharding(model, method.group_size).share * count_bytes(model.parameters()))
