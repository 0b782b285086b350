"""Sizes of what each worker of a replica holds and computes, where workers divide layers or the sequence of layers.

One process computes all parts, one after another, and exchanges nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

from equipoise.planning.memory.model_sizes import ModelSizes
from equipoise.training.memory.measure_pass import MeasuredModel, PassBytes, fit_passes, measure_pass
from equipoise.training.memory.measure_sizes import count_weights
from equipoise.training.sharding.pipeline.model_trace import ModelTrace, bind_inputs, find_attribute, list_stage_inputs
from equipoise.training.sharding.pipeline.piece_measurement import measure_model_nodes
from equipoise.training.sharding.pipeline.stage_cut import StageBoundary, build_stage, cut_stages
from equipoise.training.sharding.pipeline.stage_weights import place_weights
from equipoise.training.sharding.tensor.part_exchange import CHANNEL_DIM, PartExchange
from equipoise.training.sharding.tensor.tensor_plan import divide_model, plan_tensor_sharding


def measure_parts(
    measured: MeasuredModel,
    sizes: ModelSizes,
    batch_sizes: Sequence[int],
    boundaries: Sequence[StageBoundary] | None,
) -> tuple[ModelSizes, ...]:
    """Return the sizes of each part of a model whose whole sizes are known; of equal parts, of one. It is changed."""
    method, model = measured.config.sharding_method, measured.model
    if method.kind == "pipeline":
        return measure_stage_sizes(measured, sizes, batch_sizes, boundaries)
    divide_model(model, plan_tensor_sharding(model, method.group_size), LoneExchange(method.group_size))
    passes = {size: measured.measure(size) for size in batch_sizes}
    return (replace(sizes, **count_weights(model.parameters(), model.buffers()), **fit_passes(passes)),)


class LoneExchange(PartExchange):
    """Exchange of a part without the others, which takes as much memory as one with them."""

    def __init__(self, num_parts: int) -> None:
        super().__init__(cast(dist.ProcessGroup, None), 0, num_parts)

    def sum_in_step(self, x: Tensor) -> Tensor:
        """Return a tensor in place of its sum."""
        return x

    def gather_in_step(self, x: Tensor) -> Tensor:
        """Return as many channels as all parts have."""
        by_part = [x, *(torch.empty_like(x) for _ in range(self.num_parts - 1))]
        return torch.cat(by_part, CHANNEL_DIM)


class MeasuredPass(NamedTuple):
    """Bytes of a pass through a stage, and the value that it hands on."""

    bytes: PassBytes
    value: Tensor


class MeasuredStage(NamedTuple):
    """Stage of a pipeline whose passes are measured."""

    measured: MeasuredModel
    """whole model"""
    module: fx.GraphModule
    boundary: StageBoundary | None
    """with the stage before, if there is one"""
    is_last: bool

    @property
    def reads_batches(self) -> bool:
        """Whether the stage takes inputs of the model, or its targets."""
        return self.is_last or bool(list_stage_inputs(self.module))

    def measure(self, size: int, value: Tensor | None) -> MeasuredPass:
        """Return the bytes of a pass of so many examples, from the value of the stage before."""
        inputs, targets = self.measured.load_batch(size)
        names = list_stage_inputs(self.module)
        named_inputs = bind_inputs(self.measured.model, inputs) if names else {}
        outputs: list[Tensor] = []

        def run_forward() -> list[Tensor]:
            received = [] if value is None else [value.clone()]  # held until the backward pass
            if self.boundary and self.boundary.needs_gradient:
                received = [received[0].requires_grad_(), received[0].clone()]
            with self.measured.autocast():
                result = self.module(*received[-1:], *(named_inputs[name] for name in names))
                if self.is_last:
                    result = self.measured.workload.loss(result, targets)
            outputs[:] = [result.detach()]
            return [*received[:1], result]

        return MeasuredPass(measure_pass(run_forward, self.module, self.measured.device), outputs[0])


def measure_stage_sizes(
    measured: MeasuredModel,
    sizes: ModelSizes,
    batch_sizes: Sequence[int],
    boundaries: Sequence[StageBoundary] | None,
) -> tuple[ModelSizes, ...]:
    """Return the sizes of each stage, cut at boundaries or else by the times that pieces of the model take here."""
    config, model, num_stages = measured.config, measured.model, measured.config.sharding_method.group_size
    batch = measured.load_batch(config.batch_size)
    trace = ModelTrace(model, batch[0])
    if boundaries is None:
        nodes = measure_model_nodes(config, measured.workload, trace, batch, measured.device)
        boundaries = cut_stages(trace, nodes, num_stages)
    places = place_weights(model, trace, boundaries).items()
    values: dict[int, Tensor | None] = dict.fromkeys(batch_sizes)
    parts = []
    for part in range(num_stages):
        module = build_stage(trace, trace.train_graph, boundaries, part)
        stage = MeasuredStage(measured, module, boundaries[part - 1] if part else None, part == num_stages - 1)
        passes = {size: stage.measure(size, values[size]) for size in batch_sizes}
        held = [find_attribute(model, name) for name, place in places if part in place.holders]
        parts.append(
            replace(
                sizes,
                **count_weights(
                    [value for value in held if isinstance(value, nn.Parameter)],
                    [value for value in held if not isinstance(value, nn.Parameter)],
                ),
                **fit_passes({size: each.bytes for size, each in passes.items()}),
                example_bytes=sizes.example_bytes if stage.reads_batches else 0,
                received_bytes_per_example=count_example_bytes(values),
                sent_bytes_per_example=0.0,
            )
        )
        values = {size: each.value for size, each in passes.items()}
    received = [each.received_bytes_per_example for each in parts]
    return tuple(
        replace(stage, sent_bytes_per_example=sent) for stage, sent in zip(parts, [*received[1:], 0.0], strict=True)
    )


def count_example_bytes(values: Mapping[int, Tensor | None]) -> float:
    """Return the bytes of an example of a value, given for several batch sizes; 0 for none."""
    value = values[max(values)]
    return 0.0 if value is None else value.nbytes / max(values)
