"""Divide a model among workers as --sharding asks for it."""

from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.workloads import Workload


def shard_model(
    config: TrainConfig, model: nn.Module, mesh: WorkerMesh, workload: Workload, loader: BatchLoader
) -> ShardedModel:
    """Return the part of a model, at the start of a run and on its device, that this worker holds.

    A pipeline is cut by how long the layers take for a micro-batch of the workload.
    """
    kind = "none" if mesh.workers == 1 else config.sharding_method.kind
    if kind == "optimizer":
        from equipoise.training.sharding.optimizer.optimizer_sharding import OptimizerSharding

        return OptimizerSharding(config, model, mesh)
    if kind == "full":
        from equipoise.training.sharding.full.full_sharding import FullSharding

        return FullSharding(config, model, mesh)
    if kind == "tensor":
        from equipoise.training.sharding.tensor.tensor_sharding import TensorSharding

        return TensorSharding(config, model, mesh)
    if kind == "pipeline":
        from equipoise.training.sharding.pipeline.pipeline_sharding import PipelineSharding

        return PipelineSharding(config, model, mesh, workload, loader)
    return ShardedModel(config, model, mesh)
