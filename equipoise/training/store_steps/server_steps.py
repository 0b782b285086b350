"""Steps of `--sync server`: servers sum the gradients of all workers in the order of ranks, and update the weights."""

from collections.abc import Callable

from torch import Tensor

from equipoise.parameter_store.order import Update
from equipoise.parameter_store.servers.server_messages import LapStart
from equipoise.parameter_store.store import ParameterStore
from equipoise.training.dataloader import BatchLoader
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep
from equipoise.training.store_steps.store_sync import StoreSync


class StoreOptimizer:
    """State of the optimizer that the servers of a store keep, as one optimizer of all parameters has it."""

    def __init__(self, store: ParameterStore) -> None:
        self.store = store

    def state_dict(self) -> dict[str, Tensor]:
        """Collect the state from all servers; any process may ask alone."""
        return self.store.collect_optimizer_state()

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Give the server of this process its part of a state, and its part of the weights of the model."""
        self.store.load(tensors)


class ServerSteps(ExactSteps):
    """Steps of all workers together, each an update by the servers."""

    def __init__(
        self, gradient_step: GradientStep, micro_indices: range, store: ParameterStore, sync: StoreSync
    ) -> None:
        super().__init__(gradient_step, micro_indices)
        self.store, self.store_sync = store, sync
        self.optimizer = StoreOptimizer(store)
        self.workers = len(store.layout.worker_ranks)

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others, from the weights that the model has now."""
        super().begin(loader, step)
        self.store.load({})
        self.store_sync.ticket = step * self.workers + (self.store.client.worker if self.store.client else 0)
        self.store_sync.tickets_per_step = self.workers

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take the steps after `step` others, and return the losses by step and micro-batch of this process."""
        lrs = [lr_at(index + 1) for index in range(step, step + num_steps)]
        workers = self.workers  # the server may not keep these steps alive, which keep the store

        def lr_of_update(update: Update) -> float:
            return lrs[update.pushes[0].ticket // workers - step]

        self.store.begin_lap(LapStart(step * workers, (step + num_steps) * workers, lr_of_update))
        return super().run(step, num_steps, lr_at)
