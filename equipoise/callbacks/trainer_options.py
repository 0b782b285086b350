"""Options that the callbacks of all trainers share, and how they start an observer and report a metric."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from equipoise.errors import EquipoiseError
from equipoise.observation.observer import Observer
from equipoise.observation.step_sampling import MeasurementCadence


@dataclass(frozen=True)
class TrainerOptions:
    """Options of a callback; see `equipoise.observe` for those that it shares."""

    out: str | Path
    name: str | None
    metric: str | None
    target: float | None
    lower_is_better: bool
    batch_size: int | None
    cadence: MeasurementCadence

    def start_observer(
        self, model: nn.Module, optimizer: Optimizer, batch_size: int, follow_forward: bool, seed: int = 0
    ) -> Observer:
        """Start an observer of the model and optimizer of a trainer."""
        options = {"target": self.target, "lower_is_better": self.lower_is_better, "seed": seed}
        options |= {"batch_size": batch_size}
        return Observer(model, optimizer, self.out, self.name, options, self.cadence, follow_forward)

    def report_metric(self, observer: Observer, metrics: Mapping[str, Any]) -> None:
        """Report the metric of an evaluation; refuse a name that the evaluation does not have."""
        if self.metric is None:
            observer.pause()
            return
        if self.metric not in metrics:
            raise EquipoiseError(
                "option-choice",
                f"cannot report the metric {self.metric}: the evaluation has {', '.join(sorted(metrics)) or 'none'}",
                "give one of these as metric",
            )
        observer.report(float(metrics[self.metric]))


def require_batch_size(batch_size: int | None) -> int:
    """Return the number of examples per batch; refuse one that the data loader does not tell."""
    if batch_size is None:
        raise EquipoiseError(
            "option-missing",
            "cannot observe the trainer: its data loader has no batch_size",
            "give batch_size to the callback",
        )
    return batch_size
