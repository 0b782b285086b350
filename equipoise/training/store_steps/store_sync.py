"""Exchange of a step with a parameter store: gradients are pushed, and the wait for sums ends with new weights."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from equipoise.parameter_store.node_level import WorkerExchange
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import GradientAllReduce, SumTraffic


class StoreSync(GradientAllReduce):
    """Push and pull of a worker, in place of `GradientAllReduce` and a step of the worker's own optimizer."""

    updates_weights = True

    def __init__(
        self, parameters: Sequence[nn.Parameter], exchange: WorkerExchange, processes: int, traffic: SumTraffic
    ) -> None:
        super().__init__([], processes)
        self.parameters, self.exchange, self.traffic = parameters, exchange, traffic
        self.ticket, self.tickets_per_step = 0, 1
        for parameter, view in zip(parameters, exchange.gradient_views, strict=True):
            if not parameter.is_cuda:
                parameter.register_post_accumulate_grad_hook(self._build_hook(view))

    def set_algorithms(self, algorithms: Sequence[AppliedAllReduce]) -> None:
        """Do nothing: servers sum in the order of workers."""

    def begin_last_micro_batch(self, gradient_norms: GradientNorms | None) -> None:
        """Put gradients where they are sent from, as they come from now on; no noise scale is told from them."""
        self.is_last_micro_batch = True

    def launch_remaining(self) -> None:
        """Push the gradients of the step."""
        self.is_last_micro_batch = False
        self.exchange.push(self.ticket, [parameter.grad for parameter in self.parameters])
        self.ticket += self.tickets_per_step

    def wait_for_sums(self) -> None:
        """Wait until the model has the weights after the step."""
        self.exchange.pull()

    def _build_hook(self, view: Tensor) -> Callable[[Tensor], None]:
        def on_gradient(parameter: Tensor) -> None:
            if self.is_last_micro_batch and parameter.grad is not None:
                parameter.grad = view.copy_(parameter.grad)  # keeping it for later costs page faults, as in a bucket

        return on_gradient
