"""How a trial of a sweep runs on one worker that stands for all of them.

Trials take seconds, so their processes are kept and given the next trial, and import no more than they
need. What a trial measured is written by the trial itself as it goes.
"""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from ray import tune
from torch import nn

from equipoise.config import Trial
from equipoise.hardware import machine
from equipoise.runs.record import Record
from equipoise.storage import atomic as store
from equipoise.storage import object_store
from equipoise.training.loop import Training
from equipoise.workloads import Workload, workload

UNDER_WAY = "under way"
TURN_SECONDS = 0.5  # between two words with the driver


class Alone(tune.Trainable):
    """One trial on one worker, a turn at a time."""

    made: tuple[Trial, Workload] | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """The first trial of this process."""
        self.reset_config(config)
        self.fresh = True

    def reset_config(self, config: dict[str, Any]) -> bool:
        """The next trial of this process."""
        self.fresh, self.began = False, time.monotonic()
        trial = Trial(**config["trial"])
        torch.set_num_threads(trial.threads)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.path = object_store.place(config["path"])
        self.training = Training(trial, self._workload(trial), device)
        self.laps = self.training.laps()
        return True

    def step(self) -> dict[str, Any]:
        """Laps for half a second, and what came of them."""
        training, start = self.training, time.monotonic()
        while training.ended is None and time.monotonic() < start + TURN_SECONDS:
            next(self.laps, None)
        busy = time.monotonic() - start
        note(training, self.path)
        return said(training, busy) | {"fresh": self.fresh, "since": time.monotonic() - self.began}

    def _workload(self, trial: Trial) -> Workload:
        """Made once for all trials of a process: they differ in what no data depends on."""
        common = replace(trial, batch=1, accumulate=1, lr=0.0, seed=0)
        if self.made is None or self.made[0] != common:
            self.made = common, workload(trial)
        return self.made[1]


def said(training: Training, busy: float) -> dict[str, Any]:
    """What Tune, and a tracker behind it, are told; `busy` are the seconds trained since the last word."""
    metric = next((lap.metric for lap in reversed(training.done) if lap.metric is not None), 0.0)
    loss = training.done[-1].loss if training.done else float("nan")
    return {"seen": training.seen, "metric": metric, "loss": loss, "busy": busy, "done": training.ended is not None}


def note(training: Training, path: Path) -> None:
    """Write what the trial has measured so far."""
    record = Record(
        trial=training.trial,
        machine=machine(training.device),
        laps=training.done,
        ended=training.ended or UNDER_WAY,
        target=training.target,
        examples_to_target=training.crossing,
        test=None,
    )
    store.write_json(path, record.to_json())


def split_matters(model: nn.Module) -> bool:
    """Whether it makes a difference to the model how a global batch is split over workers.

    It does where layers look at the examples beside each other (batch normalisation), or draw for a
    worker's part of the batch (dropout).
    """
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return any(isinstance(module, kinds) for module in model.modules())


def trial_of(base: Trial, setting: tuple[int, float, int], workers: int, real: bool, whole: int) -> Trial:
    """The trial of a global batch, rate and seed that `workers` share.

    On real workers; or on one that takes their parts in turn; or, up to a batch of `whole`, on one that takes
    all at once, which are the same steps but for rounding if the model does not mind how a batch is split.
    """
    batch, lr, seed = setting
    facts = asdict(base) | {"lr": lr, "seed": seed}
    if real:
        return Trial(**facts | {"workers": workers, "batch": batch // workers})
    if batch > whole:
        return Trial(**facts | {"workers": 1, "batch": batch // workers, "accumulate": workers})
    return Trial(**facts | {"workers": 1, "batch": batch})
