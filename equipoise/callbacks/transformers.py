"""Callback for the Trainer of transformers: `Trainer(..., callbacks=[EquipoiseCallback(out="runs/mine")])`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from equipoise.callbacks.trainer_options import TrainerOptions
from equipoise.errors import EquipoiseError
from equipoise.observation.observer import Observer
from equipoise.observation.step_sampling import MeasurementCadence

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise EquipoiseError(
        "package-missing",
        "cannot use the callback for transformers: transformers is not installed",
        "pip install 'transformers[torch]'",
    ) from error


class EquipoiseCallback(TrainerCallback):
    """Callback that observes `Trainer.train` on every worker, and closes its observer when the training ends.

    `out` is a new folder; `metric` names what is reported after each evaluation, such as "eval_accuracy".
    """

    def __init__(
        self,
        out: str | Path,
        *,
        name: str | None = None,
        metric: str | None = None,
        target: float | None = None,
        lower_is_better: bool = False,
        noise_scale_every: int | None = None,
        lap_steps: int | None = None,
        parts_every: int | None = None,
        profile_steps: int = 0,
    ) -> None:
        cadence = MeasurementCadence(lap_steps, parts_every, noise_scale_every, profile_steps)
        self.options = TrainerOptions(out, name, metric, target, lower_is_better, None, cadence)
        self.observer: Observer | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Optimizer, **kwargs: Any
    ) -> None:
        """Start to observe; an earlier training that failed is ended first."""
        if self.observer:
            self.observer.abandon(None)
        self.observer = self.options.start_observer(
            model, optimizer, args.per_device_train_batch_size, follow_forward=True, seed=args.seed
        )

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Keep the training loss for the mean of the lap."""
        if self.observer and "loss" in (logs or {}):
            self.observer.add_loss(torch.tensor(float((logs or {})["loss"])))

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Report the metric of the evaluation."""
        if self.observer:
            self.options.report_metric(self.observer, metrics or {})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock until training goes on."""
        if self.observer:
            self.observer.pause()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the files of the run."""
        if self.observer:
            self.options.end_observation(self.observer)
