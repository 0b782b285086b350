"""Steps of a run as its options ask for them: with exact sums of gradients, compressed ones, or averages of weights."""

import math
from typing import TYPE_CHECKING, TypeAlias, Union

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.gradient_sums.build_gradient_sync import build_gradient_sync
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep

if TYPE_CHECKING:
    from equipoise.training.local_sgd.local_steps import LocalSteps
    from equipoise.training.store_steps.async_steps import AsyncSteps
    from equipoise.training.store_steps.scheduled_steps import ScheduledSteps

TrainSteps: TypeAlias = Union[ExactSteps, "LocalSteps", "AsyncSteps", "ScheduledSteps"]


def build_steps(
    config: TrainConfig, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
) -> TrainSteps:
    """Build the steps of this process; an interval between exchanges ends with the run if that is shorter."""
    rank, processes = timer.rank, timer.workers
    if config.sync_method.kind == "async":
        from equipoise.training.store_steps.build_async_steps import build_async_steps  # synchronous steps need none

        return build_async_steps(config, backward_pass, optimizer, timer)
    if config.sync_method.kind == "server":
        from equipoise.training.store_steps.build_server_steps import build_server_steps  # others need no store

        return build_server_steps(config, backward_pass, optimizer, timer)
    if not config.sync_method.is_local:
        sync = build_gradient_sync(config, optimizer.named_parameters, rank, processes, timer)
        step = GradientStep(config, backward_pass, sync, optimizer, timer)
        return ExactSteps(step, list_own_micro_batches(config, rank, processes))
    from equipoise.training.local_sgd.build_local_steps import build_local_steps  # exact sums need none

    alone = GradientAllReduce(list(optimizer.named_parameters.values()), workers=1)
    step = GradientStep(config, backward_pass, alone, optimizer, timer)
    steps_of_run = math.ceil(max_examples / config.global_batch)
    return build_local_steps(config, step, min(config.sync_method.interval, steps_of_run))
