"""Seconds of each node of a model's graph and the layout of its value, measured by one worker for all."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn

from equipoise.config import TrainConfig
from equipoise.training.dataloader import InputsAndTargets
from equipoise.training.sharding.pipeline.model_trace import ModelTrace, bind_inputs, find_attribute, find_result
from equipoise.training.sharding.pipeline.tensor_layout import ROW_LENGTH, TensorLayout, is_transferable
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.torch_state import get_dropout_generator
from equipoise.workloads import Workload

REPEATS = 3
Autocast = Callable[[], AbstractContextManager[object]]


class NodeMeasurement(NamedTuple):
    """What a node of the graph takes for a micro-batch, and what it leaves."""

    seconds: float
    """of forward and backward pass, the fastest of several"""
    draws_numbers: bool
    """whether it draws random numbers"""
    layout: TensorLayout | None
    """of its value, if a stage could hand it on"""


def measure_model_nodes(
    config: TrainConfig, workload: Workload, trace: ModelTrace, batch: InputsAndTargets, device: torch.device
) -> list[NodeMeasurement]:
    """Measure each node of a model as a micro-batch of a run passes through it."""
    inputs, targets = batch
    autocast = BackwardPass(config, workload, trace.model, device).autocast
    named_inputs = bind_inputs(trace.model, inputs)
    return measure_nodes(trace, named_inputs, lambda outputs: workload.loss(outputs, targets), device, autocast)


def measure_nodes(
    trace: ModelTrace,
    inputs: Mapping[str, Any],
    loss: Callable[[Any], Tensor],
    device: torch.device,
    autocast: Autocast,
) -> list[NodeMeasurement]:
    """Measure each node of a trace in turn; the last one with the loss of its value. Nothing of the model changes.

    Each node is differentiated by itself, so that no more than its own intermediate results are held.
    """
    model = trace.model
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    generator = get_dropout_generator(device)
    state = generator.get_state()
    values: dict[fx.Node, Any] = {
        node: inputs[str(node.target)]
        for node in trace.train_graph.nodes
        if node.op == "placeholder" and str(node.target) in inputs
    }
    measurements = []
    for node in trace.nodes:
        for value in node.all_input_nodes:
            if value.op == "get_attr":
                values[value] = find_attribute(model, str(value.target))
        run = NodeRun(model, node, values, autocast)
        before = generator.get_state()
        seconds = min(run.time_once(device) for _ in range(REPEATS))
        draws_numbers = not torch.equal(before, generator.get_state())
        values[node] = run.value
        layout = TensorLayout.read(run.value) if is_transferable(run.value) else None
        measurements.append(NodeMeasurement(seconds, draws_numbers, layout))
    seconds = min(time_loss(find_result(trace.train_graph), values, loss, device, autocast) for _ in range(REPEATS))
    measurements[-1] = measurements[-1]._replace(seconds=measurements[-1].seconds + seconds)
    with torch.no_grad():
        for buffer, saved in buffers:
            buffer.copy_(saved)
    generator.set_state(state)
    return measurements


class NodeRun:
    """Forward and backward pass of one node of a graph."""

    def __init__(self, model: nn.Module, node: fx.Node, values: Mapping[fx.Node, Any], autocast: Autocast) -> None:
        self.model, self.node, self.values, self.autocast = model, node, values, autocast
        self.value: Any = None

    def time_once(self, device: torch.device) -> float:
        """Compute the value and the gradients of what it depends on, and return the seconds that this takes."""
        args, kwargs = fx.map_arg((self.node.args, self.node.kwargs), lambda node: detach_value(self.values[node]))
        start = read_clock(device)
        with self.autocast():
            if self.node.op == "call_module":
                value = self.model.get_submodule(str(self.node.target))(*args, **kwargs)
            elif self.node.op == "call_method":
                value = getattr(args[0], str(self.node.target))(*args[1:], **kwargs)
            else:
                value = self.node.target(*args, **kwargs)  # type: ignore[operator]  # a function
        outputs = [part for part in list_parts(value) if isinstance(part, Tensor) and part.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(part) for part in outputs])
        seconds = read_clock(device) - start
        self.model.zero_grad(set_to_none=True)
        self.value = fx.node.map_aggregate(value, lambda part: part.detach() if isinstance(part, Tensor) else part)
        return seconds


def time_loss(
    result: Any, values: Mapping[fx.Node, Any], loss: Callable[[Any], Tensor], device: torch.device, autocast: Autocast
) -> float:
    """Return the seconds of a loss and its gradient."""
    outputs = fx.map_arg(result, lambda node: detach_value(values[node]))
    start = read_clock(device)
    with autocast():
        loss(outputs).backward()
    return read_clock(device) - start


def detach_value(value: Any) -> Any:
    """Return a value as one that gradients are computed of, in memory of its own, which a layer may overwrite."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter):
        return value
    return value.detach().requires_grad_(value.is_floating_point()).clone()


def list_parts(value: Any) -> list[Any]:
    """List what a value is made of."""
    return [part for item in value for part in list_parts(item)] if isinstance(value, tuple | list) else [value]


def read_clock(device: torch.device) -> float:
    """Return the time in seconds once the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def share_measurements(
    measurements: list[NodeMeasurement] | None, count: int, device: torch.device
) -> list[NodeMeasurement]:
    """Return the measurements of worker 0, which alone gives some, on all workers."""
    table = torch.zeros(count, 3 + ROW_LENGTH, dtype=torch.float64)
    for row, node in zip(table, measurements or (), strict=False):
        row[0], row[1], row[2] = node.seconds, node.draws_numbers, node.layout is not None
        if node.layout is not None:
            row[3:] = node.layout.to_row().double()
    shared = table.to(device)
    dist.broadcast(shared, 0)
    return [
        NodeMeasurement(float(row[0]), bool(row[1]), TensorLayout.from_row(row[3:]) if row[2] else None)
        for row in shared.cpu()
    ]
