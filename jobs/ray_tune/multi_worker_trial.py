"""Trial of a sweep on all of its workers, by Ray Train inside Ray Tune."""

import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import ray
import ray.train
import torch
from ray.train.torch import get_device
from ray.tune.integration.ray_train import TuneReportCallback
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group_table,
    remove_placement_group,
)

from equipoise.storage.object_store import parse_location
from equipoise.training.loop import Training
from equipoise.type_aliases import JsonObject
from jobs.ray_train.trainer import build_trainer
from jobs.ray_tune.single_worker_trial import TUNE_REPORT_SECONDS, collect_trial_metrics, write_trial_record
from jobs.ray_tune.trial_messages import TrialWorkerConfig

# of the process that only starts the workers: any fraction of a CPU would be taken from them
LAUNCHER_RESOURCES = {"CPU": 0, "memory": 1}


def run_multi_worker_trial(config: JsonObject) -> None:
    """Run one trial by Ray Train on all of its workers."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a report waits for the controller's next check
    worker_config = TrialWorkerConfig.from_dict(config)
    path, gpu = parse_location(worker_config.path), worker_config.gpu
    folder = path.parents[1] / "real" / path.stem
    build_trainer(
        run_multi_worker_loop, config, worker_config.trial, folder, gpu=gpu, callbacks=[TuneReportCallback()]
    ).fit()


def run_multi_worker_loop(config: JsonObject) -> None:
    """Train in one of the workers of a trial, reporting to Tune at intervals."""
    worker_config = TrialWorkerConfig.from_dict(config)
    trial, path = worker_config.trial, parse_location(worker_config.path)
    torch.set_num_threads(trial.threads)
    training, start = Training(trial, device=get_device()), time.monotonic()
    for _ in training.laps():
        report_is_due = training.status is not None or time.monotonic() > start + TUNE_REPORT_SECONDS
        if training.all_reduce_max(int(report_is_due)):
            report_to_tune(training, path, time.monotonic() - start)
            start = time.monotonic()
    if training.status in (None, "failed"):
        report_to_tune(training, path, time.monotonic() - start)


def report_to_tune(training: Training, path: Path, train_seconds: float) -> None:
    """Write the record and report the metrics to Tune; a barrier over all workers."""
    if training.rank == 0:
        write_trial_record(training, path)
    group = get_current_placement_group()
    metrics = collect_trial_metrics(training, train_seconds)
    ray.train.report(asdict(replace(metrics, places=group.id.hex() if group else "")))


def release_placement_group(group_id: str) -> None:
    """Free the resources of a trial's workers; Ray Train does so only for trials that were not stopped."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(group_id)))


def release_placement_groups_of_job() -> None:
    """Free the resources of all trials of this job; a trial that was stopped before its first report told no id."""
    job_id = ray.get_runtime_context().get_job_id()
    for group_id, facts in placement_group_table().items():
        if group_id.endswith(job_id) and facts["state"] != "REMOVED":  # the id of a group ends with that of its job
            release_placement_group(group_id)
