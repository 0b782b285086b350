"""Optimizer of a part of the weights."""

from collections.abc import Mapping

from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.sharding.optimizer.shared_weights import SharedWeights


class PartOptimizer(RunOptimizer):
    """Optimizer that updates some of the weights, and receives the others from the workers that update them."""

    def __init__(
        self,
        config: TrainConfig,
        named_parameters: dict[str, nn.Parameter],
        own_names: list[str],
        lr_scales: Mapping[str, float],
        weights: SharedWeights,
    ) -> None:
        self.own: RunOptimizer | None = None
        if own_names:
            self.own = RunOptimizer(config, {name: named_parameters[name] for name in own_names}, dict(lr_scales))
        self.named_parameters, self.weights = named_parameters, weights

    def step(self, lr: float) -> None:
        """Take one step along the gradients that the parameters hold, on all workers together."""
        if self.own:
            self.own.step(lr)
        self.weights.exchange()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of each of its own parameters as PARAMETER.KEY."""
        return self.own.state_dict() if self.own else {}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`."""
        if self.own:
            self.own.load_state_dict(tensors)
