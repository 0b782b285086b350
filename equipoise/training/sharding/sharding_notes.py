"""What `--sharding` makes of a model, in a line for people, before the workers start."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from equipoise.config import TrainConfig
from equipoise.formatting import format_bytes, pluralize
from equipoise.training.dataloader import PARAMETER_DTYPES, BatchLoader
from equipoise.training.sharding.worker_mesh import WorkerMesh, build_worker_mesh
from equipoise.workloads import Workload


def describe_sharding(config: TrainConfig, model: nn.Module, workload: Workload) -> str:
    """Return a line on what each worker holds of a model, or "" if it is all; refuse a model that does not fit.

    The model is one to look at: it may be changed.
    """
    kind = config.sharding_method.kind
    if config.recompute:
        from equipoise.training.memory.recompute import recompute_blocks  # only where it is asked for

        recompute_blocks(config, model)
    if kind == "none" or config.workers == 1:
        return ""
    mesh = build_worker_mesh(config.sharding_method, 0, config.workers)
    model = model.to(PARAMETER_DTYPES[config.precision])
    if kind == "optimizer":
        return describe_state_parts(model, mesh)
    if kind == "full":
        return describe_weight_parts(model, mesh)
    if kind == "tensor":
        from equipoise.training.sharding.tensor.tensor_plan import plan_tensor_sharding

        return plan_tensor_sharding(model, mesh.num_parts).describe()
    return describe_stages(config, model, mesh, workload)


def describe_state_parts(model: nn.Module, mesh: WorkerMesh) -> str:
    """Return a line on the part of the optimizer's state that a worker keeps."""
    from equipoise.training.sharding.optimizer.weight_owners import assign_owners

    sizes = {name: value.nbytes for name, value in model.named_parameters() if value.requires_grad}
    largest = max(sum(sizes[name] for name in names) for names in assign_owners(sizes, mesh.workers))
    return (
        f"each of {mesh.workers} workers keeps the optimizer's state of at most {format_bytes(largest)} of"
        f" {format_bytes(sum(sizes.values()))} of weights"
    )


def describe_weight_parts(model: nn.Module, mesh: WorkerMesh) -> str:
    """Return a line on the part of the weights that a worker keeps, and on what it gathers at a time."""
    from equipoise.training.sharding.full.model_units import list_units, require_divisible

    require_divisible(model)
    parameters = list(model.parameters())
    kept = sum(value[: -(-len(value) // mesh.num_parts)].nbytes for value in parameters)
    unit_sizes = [sum(value.nbytes for value in unit.parameters()) for unit in list_units(model)]
    total = sum(value.nbytes for value in parameters)
    largest = max([total - sum(unit_sizes), *unit_sizes])
    return (
        f"each of {mesh.workers} workers keeps {format_bytes(kept)} of {format_bytes(total)} of weights, and gathers"
        f" units of at most {format_bytes(largest)}{describe_replicas(mesh)}"
    )


def describe_stages(config: TrainConfig, model: nn.Module, mesh: WorkerMesh, workload: Workload) -> str:
    """Return a line on the pieces of a model that stages are made of; refuse more stages than pieces."""
    from equipoise.training.sharding.pipeline.model_trace import ModelTrace
    from equipoise.training.sharding.pipeline.stage_cut import require_enough_pieces, require_uncompiled

    require_uncompiled(config)
    loader = BatchLoader(replace(config, batch_size=1), workload, torch.device("cpu"))
    pieces = len(ModelTrace(model, loader.load_micro_batch(0, 0)[0]).list_cuts()) + 1
    require_enough_pieces(pieces, mesh.num_parts)
    return (
        f"cutting {pluralize(pieces, 'piece')} of the model into {mesh.num_parts} stages, by the times that they take"
        f" on the first worker{describe_replicas(mesh)}"
    )


def describe_replicas(mesh: WorkerMesh) -> str:
    """Return the end of a line on one replica of the model."""
    return f"; {mesh.num_replicas} replicas" if mesh.num_replicas > 1 else ""


def describe_shared_statistics(config: TrainConfig, model: nn.Module, frozen_modules: Sequence[nn.Module]) -> str:
    """Return a sentence on running statistics, which workers that share examples compute of more; "" without any."""
    method = config.sharding_method
    frozen = {module for root in frozen_modules for module in root.modules()}
    has_norm = any(isinstance(module, _BatchNorm) and module not in frozen for module in model.modules())
    if not method.splits_layers or config.workers == 1 or not has_norm:
        return ""
    return (
        f"the model has batch normalisation: with --sharding {config.sharding} gradients are those of --sharding none;"
        f" running statistics follow {method.group_size} times as many micro-batches, so evaluations differ slightly"
    )
