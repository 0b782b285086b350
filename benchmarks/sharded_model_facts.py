"""What closed forms of sharded steps need to know of a model; `gloo_hosts` runs it in a worker."""

from itertools import pairwise
from typing import TypedDict

from torch import nn

from benchmarks.sharded_models import CONTEXT, LAYERS, MLP_WIDTH, MODELS, SLEEPING_WIDTH, WIDTH
from benchmarks.sharded_steps import GENERATOR_BYTES, build_training
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.loop import Training
from equipoise.training.sharding.full.model_units import list_units
from equipoise.training.sharding.optimizer.weight_owners import assign_owners
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
    part_bytes: dict[int, list[int]]
    """weights that each of some workers updates"""
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
    plan = plan_tensor_sharding(training.workload.model(), 2)
    width = {"gpt": WIDTH * CONTEXT, "mlp": MLP_WIDTH, "sleeping_mlp": SLEEPING_WIDTH}[model]
    return {
        "unit_bytes": [*units, total - sum(units)] if total > sum(units) else units,
        "bucket_bytes": list_bucket_bytes(module),
        "part_bytes": {count: list_part_bytes(module, count) for count in stage_counts},
        "divided_share": plan.share,
        "divided_bytes": round(plan.share * total),
        "sum_bytes": [4 * batch * width] * {"gpt": 4 * LAYERS, "mlp": 2, "sleeping_mlp": 3}[model],
        "stages": {count: measure_stages(training, count) for count in stage_counts},
    }


def list_part_bytes(module: nn.Module, workers: int) -> list[int]:
    """Return the bytes of the weights that each worker updates."""
    sizes = {name: value.nbytes for name, value in module.named_parameters()}
    return [sum(sizes[name] for name in names) for names in assign_owners(sizes, workers)]


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
