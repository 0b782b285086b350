"""Callback for Lightning's Trainer: `Trainer(callbacks=[EquipoiseCallback(out="runs/mine")])`."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from equipoise.callbacks.trainer_options import TrainerOptions, require_batch_size
from equipoise.errors import EquipoiseError
from equipoise.observation.observer import Observer
from equipoise.observation.step_sampling import MeasurementCadence

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise EquipoiseError(
            "package-missing",
            "cannot use the callback for Lightning: Lightning is not installed",
            "pip install lightning",
        ) from error


class EquipoiseCallback(Callback):
    """Callback that observes `Trainer.fit` on every worker, and closes its observer when the fit ends or fails.

    `out` is a new folder; `metric` names what is reported after each validation, such as "val_accuracy". The number of
    examples per batch is that of the training data loader, unless it is given.
    """

    def __init__(
        self,
        out: str | Path,
        *,
        name: str | None = None,
        metric: str | None = None,
        target: float | None = None,
        lower_is_better: bool = False,
        batch_size: int | None = None,
        noise_scale_every: int | None = None,
        lap_steps: int | None = None,
        parts_every: int | None = None,
        profile_steps: int = 0,
    ) -> None:
        cadence = MeasurementCadence(lap_steps, parts_every, noise_scale_every, profile_steps)
        self.options = TrainerOptions(out, name, metric, target, lower_is_better, batch_size, cadence)
        self.observer: Observer | None = None

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Start to observe the first optimizer."""
        batch_size = self.options.batch_size or getattr(trainer.train_dataloader, "batch_size", None)
        self.observer = self.options.start_observer(
            pl_module, trainer.optimizers[0], require_batch_size(batch_size), follow_forward=False
        )

    def on_train_batch_start(self, trainer: Any, pl_module: nn.Module, batch: Any, batch_idx: int) -> None:
        """Note that the batch is there and the forward pass starts."""
        if self.observer:
            self.observer.hooks.begin_forward()

    def on_before_backward(self, trainer: Any, pl_module: nn.Module, loss: Tensor) -> None:
        """Follow the backward pass, and keep the loss for the mean of the lap."""
        if self.observer:
            self.observer.hooks.watch_output(loss)
            num_batches = trainer.accumulate_grad_batches
            self.observer.add_loss(loss if num_batches == 1 else loss.detach() * num_batches)

    def on_validation_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Stop the clock until training goes on."""
        if self.observer:
            self.observer.pause()

    def on_validation_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Report the metric of the validation."""
        if self.observer:
            self.options.report_metric(self.observer, trainer.callback_metrics)

    def on_save_checkpoint(self, trainer: Any, pl_module: nn.Module, checkpoint: Any) -> None:
        """Stop the clock until training goes on."""
        if self.observer:
            self.observer.pause()

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Write the files of the run."""
        if self.observer:
            self.options.end_observation(self.observer)

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Write the files of the run with the reason of the failure."""
        if self.observer:
            self.observer.abandon(exception)
