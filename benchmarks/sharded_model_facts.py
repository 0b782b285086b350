"""What closed forms of sharded steps need to know of a model; `gloo_hosts` runs it in a worker."""

from itertools import pairwise
from typing import TypedDict

from torch import nn

from benchmarks.sharded_steps import CONTEXT, GENERATOR_BYTES, LAYERS, MLP_WIDTH, MODELS, WIDTH, build_training
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.loop import Training
from equipoise.training.sharding.full.model_units import list_units
from equipoise.training.sharding.pipeline.model_trace import ModelTrace, bind_inputs
from equipoise.training.sharding.pipeline.piece_measurement import measure_nodes
from equipoise.training.sharding.pipeline.stage_cut import cut_stages, find_weight_holders
from equipoise.training.sharding.tensor.tensor_plan import plan_tensor_sharding


class StageFacts(TypedDict):
    """Stages that a pipeline would have."""

    shares: list[float]
    """of the seconds of all"""
    boundary_bytes: list[int]
    tied_bytes: int


class ModelFacts(TypedDict):
    """What closed forms need to know of a model."""

    unit_bytes: list[int]
    bucket_bytes: list[int]
    divided_share: float
    divided_bytes: int
    """weights of the layers that workers divide"""
    sum_bytes: list[int]
    stages: dict[int, StageFacts]


def measure_model(model: str, stage_counts: list[int]) -> ModelFacts:
    """Measure a model on one worker."""
    training = build_training(model, "none", 1)
    next(training.laps())
    batch, module = MODELS[model][1], training.model
    units = [sum(p.nbytes for p in unit.parameters()) for unit in list_units(module)]
    total = sum(p.nbytes for p in module.parameters())
    plan = plan_tensor_sharding(module, 2)
    width = WIDTH * CONTEXT if model == "gpt" else MLP_WIDTH
    return {
        "unit_bytes": [*units, total - sum(units)] if total > sum(units) else units,
        "bucket_bytes": list_bucket_bytes(module),
        "divided_share": plan.share,
        "divided_bytes": round(plan.share * total),
        "sum_bytes": [4 * batch * width] * (4 * LAYERS if model == "gpt" else 2),
        "stages": {count: measure_stages(training, count) for count in stage_counts},
    }


def list_bucket_bytes(module: nn.Module) -> list[int]:
    """Return the bytes of the buckets that sums over several workers have."""
    sync = GradientAllReduce([*module.parameters()], 2)
    return [bucket.flat_gradients.nbytes for bucket in sync.buckets]


def measure_stages(training: Training, count: int) -> StageFacts:
    """Return the stages that a pipeline of this model would have, by times that this worker measures."""
    inputs, targets = training.loader.load_micro_batch(0, 0)
    trace = ModelTrace(training.model, inputs)
    measured = measure_nodes(
        trace,
        bind_inputs(training.model, inputs),
        lambda outputs: training.workload.loss(outputs, targets),
        training.device,
        training.autocast,
    )
    boundaries = cut_stages(trace, measured, count)
    bounds = [0, *(boundary.node for boundary in boundaries), len(measured)]
    seconds = [sum(node.seconds for node in measured[a:b]) for a, b in pairwise(bounds)]
    sizes = {name: value.nbytes for name, value in training.model.named_parameters()}
    holders = find_weight_holders(trace, boundaries, [[name] for name in sizes])
    return {
        "shares": [value / sum(seconds) for value in seconds],
        "boundary_bytes": [b.layout.nbytes + GENERATOR_BYTES * b.carries_generator for b in boundaries],
        "tied_bytes": sum(size for size, stages in zip(sizes.values(), holders, strict=True) if len(stages) > 1),
    }
