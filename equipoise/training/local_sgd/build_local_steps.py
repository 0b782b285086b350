"""Steps between averages as the options ask for them."""

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.training.local_sgd.local_steps import LocalSteps
from equipoise.training.local_sgd.outer_step import OuterStep
from equipoise.training.local_sgd.state_average import StateAverage
from equipoise.training.local_sgd.worker_state import WorkerState
from equipoise.training.sampler import find_hosted_workers
from equipoise.training.steps.gradient_step import GradientStep


def build_local_steps(config: TrainConfig, gradient_step: GradientStep, interval: int) -> LocalSteps:
    """Build the steps of the workers that this process hosts, with an average every `interval` steps."""
    rank, processes = gradient_step.timer.rank, gradient_step.timer.workers
    hosted = find_hosted_workers(config, rank, processes)
    state = WorkerState(gradient_step.backward_pass.model, gradient_step.optimizer)
    if config.compression_method.kind != "none":
        raise EquipoiseError("compression-unusable", "cannot compress averages yet", "use --compression none")
    tensors = state.list_averaged_later(config)
    average = StateAverage(tensors, config.workers, len(hosted), processes, config.all_reduce)
    outer_step = None
    if config.sync_method.kind == "diloco":
        outer_step = OuterStep(gradient_step.optimizer, config.outer_lr, config.outer_momentum)
    micros = config.grad_accumulation
    workers = [range(worker * micros, (worker + 1) * micros) for worker in hosted]
    return LocalSteps(gradient_step, state, average, outer_step, workers, interval)
