"""Parts of a training run as its recipes ask for them; without any they are those of every run."""

from typing import TYPE_CHECKING

import torch

from equipoise.config import TrainConfig
from equipoise.training.best_weights import BestWeights, KeptWeights
from equipoise.training.dataloader import BatchLoader
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.build_steps import TrainSteps
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.workloads import Workload

if TYPE_CHECKING:
    from equipoise.training.recipes.batch_grower import BatchGrower


def build_loader(config: TrainConfig, workload: Workload, device: torch.device) -> BatchLoader:
    """Build the loader of a worker's batches."""
    if not config.mixup:
        return BatchLoader(config, workload, device)
    from equipoise.training.recipes.mixup_loader import MixupLoader  # other runs blend nothing

    return MixupLoader(config, workload, device)


def build_kept_weights(config: TrainConfig, sharded: ShardedModel, steps: TrainSteps, timer: StepTimer) -> KeptWeights:
    """Build what a run keeps beside its weights: those of its best evaluation, and the average over its steps."""
    best = BestWeights(sharded.list_weights) if config.keep == "best" else None
    if not config.average_weights:
        return KeptWeights(best, None)
    from equipoise.training.recipes.averaged_weights import AveragedWeights  # other runs average nothing

    average = AveragedWeights(sharded.parameters, config.average_weights, timer)
    assert isinstance(steps, ExactSteps)  # noqa: S101 - the options are refused with all others
    steps.after_step = average.add_step
    return KeptWeights(best, average)


def build_batch_grower(config: TrainConfig, workload: Workload) -> "BatchGrower | None":
    """Build what lets the batch grow, or None where it stays as it is."""
    if not config.batch_growth:
        return None
    from equipoise.training.recipes.batch_grower import BatchGrower  # in other runs the batch stays

    return BatchGrower(config, max_batch=len(workload.train))


def adapt_loss(config: TrainConfig, workload: Workload) -> Workload:
    """Return the workload with the loss of training."""
    if not config.label_smoothing:
        return workload
    from equipoise.workloads.recipes.label_smoothing import smooth_labels  # other runs smooth nothing

    return smooth_labels(workload, config.label_smoothing)
