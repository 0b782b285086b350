"""Part of the weights that one server holds, with the optimizer that updates it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.parameter_store.part_buffer import PartBuffer


class ServerPart:
    """Weights, sum of gradients and optimizer of the keys of one server, in main memory."""

    def __init__(
        self, config: TrainConfig, parameters: Mapping[str, nn.Parameter], lr_scales: Mapping[str, float]
    ) -> None:
        """Hold keys of the model's `parameters`, with their fractions of the learning rate where it is not 1."""
        tensors = list(parameters.values())
        self.weights, self.gradients = PartBuffer(tensors), PartBuffer(tensors)
        self.parameters = [nn.Parameter(view) for view in self.weights.views]
        self.optimizer = RunOptimizer(config, dict(zip(parameters, self.parameters, strict=True)), dict(lr_scales))
        self.clip_norm = config.clip_norm
        self.weights.copy_from(tensors)

    @torch.no_grad()
    def sum_gradients(self, pushed: Sequence[Tensor], divisor: int) -> None:
        """Sum what workers pushed, in this order, and divide the sum."""
        total = self.gradients.values
        if len(pushed) == 1:
            total.copy_(pushed[0])
        else:
            torch.add(pushed[0], pushed[1], out=total)
            for values in pushed[2:]:
                total.add_(values)
        if divisor > 1:
            total.div_(divisor)
        for parameter, gradient in zip(self.parameters, self.gradients.views, strict=True):
            parameter.grad = gradient

    def measure_norms(self) -> Tensor:
        """Return the norm of each key's gradient."""
        return torch.stack([torch.linalg.vector_norm(gradient) for gradient in self.gradients.views])

    def clip_gradients(self, norms: Tensor) -> None:
        """Scale the gradient down by the norms of all keys of all servers, as one process does for the whole."""
        nn.utils.clip_grads_with_norm_(self.parameters, self.clip_norm, torch.linalg.vector_norm(norms))

    def update(self, lr: float) -> None:
        """Take a step of the optimizer along the sum of gradients."""
        self.optimizer.step(lr)

    def load(self, parameters: Mapping[str, nn.Parameter], optimizer_state: Mapping[str, Tensor]) -> None:
        """Take the weights of the model, and of the state of an optimizer of all keys what belongs to this part."""
        names = self.optimizer.named_parameters
        self.weights.copy_from([parameters[name] for name in names])
        own = {name: value for name, value in optimizer_state.items() if name.rpartition(".")[0] in names}
        self.optimizer.load_state_dict(own)
