"""Steps of asynchronous workers as the options ask for them."""

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.parameter_store.partition import require_enough_keys
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.store_steps.async_steps import AsyncSteps
from equipoise.training.store_steps.scheduled_steps import ScheduledSteps, VirtualWorkers
from equipoise.training.store_steps.ticket_gradient import TicketGradient
from equipoise.training.store_steps.update import UpdateStep
from equipoise.training.store_steps.worker_buffers import WorkerBuffers


def build_async_steps(
    config: TrainConfig, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer
) -> AsyncSteps | ScheduledSteps:
    """Build the steps of this process; one alone simulates the workers of the options."""
    require_enough_keys(len(optimizer.named_parameters), config.servers)
    gradient = TicketGradient(config, backward_pass, optimizer, timer)
    if timer.workers > 1:
        return build_worker_steps(config, gradient, optimizer, timer)
    buffers = WorkerBuffers(backward_pass.model)
    return ScheduledSteps(config, gradient, UpdateStep(config, optimizer), buffers, VirtualWorkers(config))


def build_worker_steps(
    config: TrainConfig, gradient: TicketGradient, optimizer: RunOptimizer, timer: StepTimer
) -> AsyncSteps:
    """Build the steps of one of several processes, and open the store of all of them."""
    from equipoise.parameter_store.logged_order import LoggedOrder  # a process alone needs no store
    from equipoise.parameter_store.store import ParameterStore

    order = LoggedOrder(config.sync_method.staleness, config.workers)
    parameters = optimizer.named_parameters
    store = ParameterStore(
        config,
        parameters,
        optimizer.lr_scales,
        worker_ranks=range(timer.workers),
        # fewer than asked for while an elastic run is short of workers
        servers=min(config.servers or timer.workers, timer.workers, len(parameters)),
        build_order=lambda: order,
        is_asynchronous=True,
    )
    return AsyncSteps(config, gradient, store, order if timer.rank == 0 else None)
