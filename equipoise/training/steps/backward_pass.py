"""Forward and backward pass of a micro-batch, with the dropout that belongs to it."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.rng import derive_seed
from equipoise.training.dataloader import PARAMETER_DTYPES
from equipoise.training.gradient_norms import GradientNorms, half_batch_norms
from equipoise.training.torch_state import get_dropout_generator
from equipoise.workloads import Workload
from equipoise.workloads.batch import Batch, call_model


class BackwardPass:
    """Forward and backward pass of a micro-batch; gradients add up over those of a step to their mean."""

    def __init__(self, config: TrainConfig, workload: Workload, model: nn.Module, device: torch.device) -> None:
        self.workload, self.model, self.device = workload, model, device
        self.forward_model = torch.compile(model) if config.compile else model
        self.dropout_generator = get_dropout_generator(device)
        self.set_config(config)

    def set_config(self, config: TrainConfig) -> None:
        """Take the mean over the micro-batches of a step that these options have."""
        self.config = config
        # between two exchanges of weights, and for a push, a worker takes the mean of its own micro-batches alone
        has_own_mean = config.sync_method.is_local or config.sync_method.kind == "async"
        self.num_parts = config.grad_accumulation if has_own_mean else config.num_micro_batches
        self.loss_weight = torch.tensor(
            1 / self.num_parts, device=self.device, dtype=PARAMETER_DTYPES[config.precision]
        )

    def run(self, inputs: Batch, targets: Batch, step: int, micro_index: int) -> Tensor:
        """Add the gradient of a micro-batch to those of the parameters, and return its mean loss."""
        self.dropout_generator.manual_seed(derive_seed(self.config.seed, step, micro_index))
        with self.autocast():
            loss = self.workload.loss(call_model(self.forward_model, inputs), targets)
        # scaled here, because `backward` validates a gradient argument: the first time with half a second of imports
        (loss if self.num_parts == 1 else loss * self.loss_weight.to(loss.dtype)).backward()
        return loss.detach()

    def is_probe_step(self, step: int) -> bool:
        """Return whether a worker without others, whose gradients it could compare with its own, halves a batch."""
        return self.config.batch_size > 1 and step % self.config.noise_scale_every == 0

    def record_half_batch_norms(self, inputs: Batch, targets: Batch, step: int, norms: GradientNorms) -> None:
        """Add the two norms of a micro-batch and its halves to `norms`; gradients stay as they are."""
        self.dropout_generator.manual_seed(derive_seed(self.config.seed, step, self.config.num_micro_batches))
        with self.autocast():
            norms.add_draw(*half_batch_norms(self.model, self.workload.loss, inputs, targets))

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the model computes: bfloat16 where --precision asks for it."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()
