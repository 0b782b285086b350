"""Training loop inside a Ray Train worker: report laps, save checkpoints and stop on request."""

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import ray.train.torch
import torch
from ray import train
from safetensors.torch import save

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals import ARRIVALS_FILE
from equipoise.runs.misclassified import write_misclassified
from equipoise.runs.record import Record
from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import parse_location
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record
from equipoise.training.torch_state import collect_weights
from equipoise.type_aliases import JsonObject
from jobs.ray_train.checkpoint_files import restore_checkpoint, write_checkpoint
from jobs.ray_train.checkpoints import CheckpointPacer
from jobs.ray_train.class_errors import find_class_errors
from jobs.ray_train.run_channel import open_run_channel

CONTINUE_TRAINING, SAVE_CHECKPOINT, STOP_TRAINING = range(3)


@dataclass(frozen=True, kw_only=True)
class TrainWorkerConfig:
    """Configuration of the workers of a run."""

    config: TrainConfig
    """options as the user gave them, which the record repeats"""
    resolved_config: TrainConfig
    """the same options with absolute paths, because workers have their own working directory"""
    out: str
    """folder or URL of the run"""

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "TrainWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        configs = {name: TrainConfig(**loop_config[name]) for name in ("config", "resolved_config")}
        return cls(**configs, out=loop_config["out"])


def train_worker(loop_config: JsonObject) -> Record | None:
    """Train from the last checkpoint on; return the record, or None if the run was stopped."""
    worker_config = TrainWorkerConfig.from_dict(loop_config)
    config, out = worker_config.resolved_config, parse_location(worker_config.out)
    torch.set_num_threads(config.threads)
    training = Training(config, device=ray.train.torch.get_device())
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            restore_checkpoint(training, Path(folder))
    pacer = CheckpointPacer()
    with open_run_channel(out, training.finished_laps, training.rank) as channel:
        for lap in training.laps():
            channel.append_lap(lap)
            action = training.all_reduce_max(
                STOP_TRAINING if channel.stop_requested() else SAVE_CHECKPOINT if pacer.is_due() else CONTINUE_TRAINING
            )
            if action != CONTINUE_TRAINING:
                with pacer.measure_save():
                    report_checkpoint(training)
                    # Ray lets the other workers continue before the first has saved: their lap would include the wait
                    training.all_reduce_max(CONTINUE_TRAINING)
            if action == STOP_TRAINING and training.status is None:
                return None
    return replace(finish_run(training, out), config=worker_config.config.with_defaults(training.workload.defaults))


def finish_run(training: Training, out: Path) -> Record:
    """Save the last checkpoint and the kept weights of a run that ended, and return its record."""
    assert training.status is not None  # noqa: S101 - the last lap has ended
    failed = training.status == "failed"
    test = errors = None
    if not failed:
        report_checkpoint(training)
        training.load_kept_weights()
        test = training.evaluate(training.workload.test)
    if training.rank == 0 and not failed:
        weights = {name: value.cpu().contiguous() for name, value in collect_weights(training.model).items()}
        with atomic_write(out / "model.safetensors") as temporary:
            metadata = {"classes": json.dumps(list(training.workload.classes))}
            temporary.write_bytes(save(weights, metadata))  # save_file would make it readable by its owner only
        if training.steps.arrival_lines is not None:
            with atomic_write(out / ARRIVALS_FILE) as temporary:
                temporary.write_text("".join(training.steps.arrival_lines), encoding="utf-8")
        if errors := find_class_errors(training):
            write_misclassified(out, errors.misclassified)
    return build_run_record(training, test, errors.classes if errors else None)


def report_checkpoint(training: Training) -> None:
    """Report a checkpoint to Ray: a barrier over all workers, outside the timed laps."""
    metrics = {"step": training.step, "seen": training.examples_seen}
    with tempfile.TemporaryDirectory() as folder:
        has_files = write_checkpoint(training, Path(folder))  # Ray joins those of all workers in one folder
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder) if has_files else None)
