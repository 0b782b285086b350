"""Operations and bytes of each layer, counted on one small micro-batch.

Operations are those of matrix products, convolutions and attention, as torch counts them; what only moves numbers, such
as a pooling, has none.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from equipoise.config import TrainConfig
from equipoise.profiling.profile_report import LayerWork
from equipoise.training.dataloader import BatchLoader
from equipoise.training.initialization.shared_model import build_shared_model
from equipoise.workloads import Workload
from equipoise.workloads.batch import call_model, list_tensors

COUNTED_EXAMPLES = 4  # batch normalisation needs more than one
OUTSIDE_KIND = "model itself and loss"


def count_layer_work(config: TrainConfig, workload: Workload, device: torch.device) -> list[LayerWork]:
    """Pass one small batch through the model of a run, and return the work of each layer that has any.

    All workers call this: what a user's loss exchanges, it exchanges here too.
    """
    config = replace(config.with_defaults(workload.defaults), batch_size=COUNTED_EXAMPLES)
    model = build_shared_model(config, workload, device, workers=1).model.train()
    inputs, targets = next(BatchLoader(config, workload, device).train_batches(range(1), 0))
    with count_layer_bytes(model, COUNTED_EXAMPLES) as layer_bytes, build_flop_counter(model) as forward:
        workload.loss(call_model(model, inputs), targets)
    with build_flop_counter(model) as both:  # which follows modules into backward from their forward pass only
        workload.loss(call_model(model, inputs), targets).backward()
    own_forward, own_both = (
        find_own_flop(sum_module_flop(counter, model), COUNTED_EXAMPLES) for counter in (forward, both)
    )
    return list_layers(model, own_forward, own_both, layer_bytes)


def build_flop_counter(model: nn.Module) -> FlopCounterMode:
    """Build torch's counter of operations for the modules of a model, with the attention on a CPU that it leaves out.

    It names modules by the first one that is called, which may be a wrapper of the model or a part of it. So names that
    begin with the model are given to it before.
    """
    counter = FlopCounterMode(
        display=False,
        custom_mapping={
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: count_attention_flop,
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: count_attention_backward_flop,
        },
    )
    counter.mod_tracker._known_modules[model] = "the model"
    counter.mod_tracker._get_mod_name(model)
    return counter


def count_attention_flop(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return the operations of attention, from the shapes of its arguments."""
    return int(sdpa_flop_count(query, key, value))


def count_attention_backward_flop(gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return the operations of the backward pass of attention, from the shapes of its arguments."""
    return int(sdpa_backward_flop_count(gradient, query, key, value))


def sum_module_flop(counter: FlopCounterMode, model: nn.Module) -> dict[str, float]:
    """Return the operations counted in each module of the counter's model; "" stands for all of the program."""
    counts, names = counter.get_flop_counts(), counter.mod_tracker._known_modules
    totals = {
        path: float(sum(counts[names[module]].values()))
        for path, module in model.named_modules()
        if names.get(module) in counts
    }
    return totals | {"": float(sum(counts.get("Global", {}).values()))}


def find_own_flop(totals: Mapping[str, float], examples: int) -> dict[str, float]:
    """Return the operations of each module for one of so many examples, without those of the modules in it."""
    own = {name: total / examples for name, total in totals.items()}
    for name, total in totals.items():
        parent = name.rpartition(".")[0]
        while parent not in totals:
            parent = parent.rpartition(".")[0]
        if name:
            own[parent] -= total / examples
    return {name: max(0.0, operations) for name, operations in own.items()}


@contextmanager
def count_layer_bytes(model: nn.Module, examples: int) -> Iterator[dict[str, list[float]]]:
    """Count the bytes of the inputs and outputs of each module for one of so many examples, by its name."""
    layer_bytes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def build_hook(name: str) -> Any:
        def count(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], outputs: Any) -> None:
            for index, values in enumerate(((arguments, keywords), outputs)):
                layer_bytes[name][index] += sum(tensor.nbytes for tensor in list_tensors(values)) / examples

        return count

    handles = [
        module.register_forward_hook(build_hook(name), with_kwargs=True) for name, module in model.named_modules()
    ]
    try:
        yield layer_bytes
    finally:
        for handle in handles:
            handle.remove()


def list_layers(
    model: nn.Module, forward: dict[str, float], both: dict[str, float], layer_bytes: dict[str, list[float]]
) -> list[LayerWork]:
    """List the layers of a model: modules without others in them, and those that compute something beside these."""
    layers = []
    for name, module in model.named_modules():
        flop = forward.get(name, 0.0), both.get(name, 0.0)
        is_leaf = not any(True for _ in module.children())
        if name not in layer_bytes or not (is_leaf or any(flop)):
            continue
        parameters = sum(parameter.nbytes for parameter in module.parameters(recurse=False))
        moved = layer_bytes[name] if is_leaf else (0.0, 0.0)
        layers.append(
            LayerWork(
                name=name,
                kind=type(module).__name__ if name else OUTSIDE_KIND,
                forward_flop=max(0.0, flop[0]),
                backward_flop=max(0.0, flop[1] - flop[0]),
                parameter_bytes=parameters,
                input_bytes=moved[0],
                output_bytes=moved[1],
            )
        )
    return layers
