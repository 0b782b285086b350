"""Steps of asynchronous workers as the options ask for them."""

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.store_steps.scheduled_steps import ScheduledSteps, VirtualWorkers
from equipoise.training.store_steps.ticket_gradient import TicketGradient
from equipoise.training.store_steps.update import UpdateStep
from equipoise.training.store_steps.worker_buffers import WorkerBuffers


def build_async_steps(
    config: TrainConfig, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer
) -> ScheduledSteps:
    """Build the steps of this process; alone, it simulates the workers of the options."""
    gradient = TicketGradient(config, backward_pass, optimizer, timer)
    buffers = WorkerBuffers(backward_pass.model)
    return ScheduledSteps(config, gradient, UpdateStep(config, optimizer), buffers, VirtualWorkers(config))
