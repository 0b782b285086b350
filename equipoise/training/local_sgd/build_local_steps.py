"""Steps between averages as the options ask for them."""

from equipoise.config import TrainConfig
from equipoise.training.local_sgd.local_steps import LocalSteps
from equipoise.training.local_sgd.outer_step import OuterStep
from equipoise.training.local_sgd.state_average import StateAverage
from equipoise.training.local_sgd.worker_state import WorkerState
from equipoise.training.sampler import find_hosted_workers
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.gradient_step import GradientStep


def build_local_steps(config: TrainConfig, gradient_step: GradientStep, interval: int) -> LocalSteps:
    """Build the steps of the workers that this process hosts, with an average every `interval` steps."""
    timer = gradient_step.timer
    hosted = find_hosted_workers(config, timer.rank, timer.workers)
    state = WorkerState(gradient_step.backward_pass.model, gradient_step.optimizer)
    average = build_average(config, state, len(hosted), timer)
    outer_step = None
    if config.sync_method.kind == "diloco":
        outer_step = OuterStep(gradient_step.optimizer, config.outer_lr, config.outer_momentum)
    micros = config.grad_accumulation
    workers = [range(worker * micros, (worker + 1) * micros) for worker in hosted]
    return LocalSteps(gradient_step, state, average, outer_step, workers, interval)


def build_average(config: TrainConfig, state: WorkerState, num_hosted: int, timer: StepTimer) -> StateAverage:
    """Build the average of what workers change: exact, or of what --compression makes of it."""
    tensors = state.list_averaged_later(config)
    if config.compression_method.kind == "none":
        return StateAverage(tensors, config, num_hosted, timer)
    from equipoise.training.local_sgd.encoded_average import EncodedAverage  # exact averages need none

    encoded = state.name_signed_later(config)
    return EncodedAverage(config, encoded, tensors[len(encoded) :], timer)
