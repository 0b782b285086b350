"""How a trial of a sweep runs on real workers: by Ray Train inside Tune."""

import os
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train.torch import get_device
from ray.tune.integration.ray_train import TuneReportCallback
from ray.util.placement_group import PlacementGroup, get_current_placement_group, remove_placement_group

from equipoise.config import Trial
from equipoise.storage import object_store
from equipoise.training.loop import Training
from jobs.ray_train.trainer import build_trainer
from jobs.ray_tune.single_worker_trial import TURN_SECONDS, note, said

STARTER = {"CPU": 0, "memory": 1}  # of the process that only starts real workers: any part of a CPU would be theirs


def real(config: dict[str, Any]) -> None:
    """One trial on as many workers as it asks for."""
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a report waits for the controller's next look
    trial, path = Trial(**config["trial"]), object_store.place(config["path"])
    place = path.parents[1] / "real" / path.stem
    build_trainer(together, config, trial, place, gpu=config["gpu"], callbacks=[TuneReportCallback()]).fit()


def together(config: dict[str, Any]) -> None:
    """One of the workers of a real trial."""
    trial = Trial(**config["trial"])
    torch.set_num_threads(trial.threads)
    training, start = Training(trial, device=get_device()), time.monotonic()
    for _ in training.laps():
        due = int(training.ended is not None or time.monotonic() > start + TURN_SECONDS)
        if training.agree(due):
            told(training, object_store.place(config["path"]), time.monotonic() - start)
            start = time.monotonic()
    if training.ended is None or training.ended.startswith("failed"):
        told(training, object_store.place(config["path"]), time.monotonic() - start)


def told(training: Training, path: Path, busy: float) -> None:
    """Write the record and tell Tune; a barrier over all workers."""
    if training.rank == 0:
        note(training, path)
    places = get_current_placement_group()
    ray.train.report(said(training, busy) | {"places": places.id.hex() if places else ""})


def freed(places: str) -> None:
    """What the workers of a trial held, once it ended: Ray Train itself frees it only where a trial went to its end."""
    remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(places)))
