"""Trial of a sweep on a single worker that stands for all of them.

Trials take seconds, so their processes are reused for the next trial and import no more than they need.
Each trial writes its own record while it runs.
"""

import math
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
from ray import tune

from equipoise.config import TrainConfig
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import parse_location
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record
from equipoise.type_aliases import JsonObject
from equipoise.workloads import WORKLOADS, Workload, load_workload
from jobs.ray_tune.trial_messages import TrialMetrics, TrialWorkerConfig
from jobs.ray_tune.trial_records import strip_exchange, strip_recipe, strip_trial_setting

TUNE_REPORT_SECONDS = 0.5  # between two reports to the driver


class SingleWorkerTrial(tune.Trainable):
    """Ray Tune trainable that runs a trial on one worker, half a second per step."""

    cached_workload: tuple[TrainConfig, Workload] | None = None

    def setup(self, config: JsonObject) -> None:
        """Set up the first trial of this process."""
        self.reset_config(config)
        self.is_first_trial = True

    def reset_config(self, config: JsonObject) -> bool:
        """Set up the next trial of this process."""
        self.is_first_trial, self.started_at = False, time.monotonic()
        worker_config = TrialWorkerConfig.from_dict(config)
        trial, self.path = worker_config.trial, parse_location(worker_config.path)
        torch.set_num_threads(trial.threads)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.training = Training(trial, self._load_cached_workload(trial), device)
        self.laps = self.training.laps()
        return True

    def step(self) -> JsonObject:
        """Train laps for half a second, write the record, and return the metrics."""
        training, start = self.training, time.monotonic()
        while training.status is None and time.monotonic() < start + TUNE_REPORT_SECONDS:
            next(self.laps, None)
        train_seconds = time.monotonic() - start
        write_trial_record(training, self.path)
        metrics = collect_trial_metrics(training, train_seconds)
        return asdict(replace(metrics, fresh=self.is_first_trial, since=time.monotonic() - self.started_at))

    def _load_cached_workload(self, trial: TrainConfig) -> Workload:
        """Return the workload, loaded once per process: trials differ only in options that no data depends on."""
        base = replace(trial, momentum=0.0, all_reduce="backend")  # on which no data depends either
        if trial.workload in WORKLOADS:  # a function of the user may read any option
            base = strip_recipe(base)
        common = strip_trial_setting(strip_exchange(base, base))
        if self.cached_workload is None or self.cached_workload[0] != common:
            self.cached_workload = common, load_workload(trial)
        return self.cached_workload[1]


def collect_trial_metrics(training: Training, train_seconds: float) -> TrialMetrics:
    """Return the metrics of a trial that has trained for `train_seconds` since its last report."""
    metric = next((lap.metric for lap in reversed(training.finished_laps) if lap.metric is not None), math.nan)
    loss = training.finished_laps[-1].loss if training.finished_laps else None
    return TrialMetrics(
        seen=training.examples_seen,
        metric=metric,
        loss=math.nan if loss is None else loss,
        busy=train_seconds,
        done=training.status is not None,
    )


def write_trial_record(training: Training, path: Path) -> None:
    """Write the record of what the trial has measured so far."""
    write_json(path, build_run_record(training).to_json())


def build_trial_config(
    base: TrainConfig, setting: tuple[int, float, int], workers: int, real_workers: bool, max_unsplit_batch: int
) -> TrainConfig:
    """Build the trial of a `setting`, its global batch, learning rate and seed, shared by `workers`.

    It runs on real workers, or on one worker that takes their parts in turn, or, up to a global batch of
    `max_unsplit_batch`, on one worker that takes the whole batch. All take the same steps except for rounding,
    unless the model depends on how a batch is split.
    """
    batch, lr, seed = setting
    options = asdict(base) | {"lr": lr, "seed": seed}
    if real_workers:
        return TrainConfig(**options | {"workers": workers, "batch_size": batch // workers})
    if batch > max_unsplit_batch:
        return TrainConfig(**options | {"workers": 1, "batch_size": batch // workers, "grad_accumulation": workers})
    return TrainConfig(**options | {"workers": 1, "batch_size": batch})
