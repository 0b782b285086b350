"""Options that the callbacks of all trainers share, and how they start an observer and report a metric."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from equipoise.errors import EquipoiseError
from equipoise.observation.observer import Observer, warn_of_problem
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
        """Report the metric of an evaluation; refuse a name that the evaluation does not have.

        Nothing is reported of evaluations after the training, and of those of other data sets.
        """
        if observer.record is not None:
            return
        if self.metric is None or is_of_other_data(self.metric, metrics):
            observer.pause()
            return
        if self.metric not in metrics:
            raise EquipoiseError(
                "option-choice",
                f"cannot report the metric {self.metric}: the evaluation has {', '.join(sorted(metrics)) or 'none'}",
                "give one of these as metric",
            )
        observer.report(float(metrics[self.metric]))

    def end_observation(self, observer: Observer) -> None:
        """Write the files of the run; warn if no evaluation had the metric."""
        if self.metric is not None and all(lap.metric is None for lap in observer.laps):
            warn_of_problem(f"no evaluation reported the metric {self.metric}, so the record has none")
        observer.close()


def is_of_other_data(metric: str, metrics: Mapping[str, Any]) -> bool:
    """Return whether metrics are those of other examples than a metric is of.

    The Trainer of transformers evaluates several data sets one after the other, and puts the name of each before its
    metrics, of which one is the runtime.
    """
    prefixes = [name.removesuffix("runtime") for name in metrics if name.endswith("_runtime")]
    return bool(prefixes) and not any(metric.startswith(prefix) for prefix in prefixes)


def require_batch_size(batch_size: int | None) -> int:
    """Return the number of examples per batch; refuse one that the data loader does not tell."""
    if batch_size is None:
        raise EquipoiseError(
            "option-missing",
            "cannot observe the trainer: its data loader has no batch_size",
            "give batch_size to the callback",
        )
    return batch_size
