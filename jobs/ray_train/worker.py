"""Ray's side of the loop: carries laps and state out of the process and decides nothing."""

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ray.train.torch
import torch
from ray import train
from safetensors.torch import load_file, save, save_file

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.runs.record import Lap, Record
from equipoise.storage.atomic import atomic_write, read_json, write_json
from equipoise.storage.object_store import parse_location
from equipoise.training.loop import Training
from jobs.ray_train.checkpoints import LAPS_FILE, TRAINING_STATE_FILE, CheckpointPacer
from jobs.ray_train.run_channel import open_run_channel

CONTINUE_TRAINING, SAVE_CHECKPOINT, STOP_TRAINING = range(3)


def train_worker(loop_config: dict[str, Any]) -> dict[str, Any] | None:
    """Train, resuming from the last checkpoint; rank 0 returns the record, or None if it was stopped."""
    config, out = TrainConfig(**loop_config["config"]), parse_location(loop_config["out"])
    torch.set_num_threads(config.threads)
    training = Training(replace(config, **loop_config["places"]), device=ray.train.torch.get_device())
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            restore_training(training, Path(folder))
    pace = CheckpointPacer()
    with open_run_channel(out, training.finished_laps, training.rank) as seen:
        for lap in training.laps():
            seen.append_lap(lap)
            wish = training.all_reduce_max(
                STOP_TRAINING if seen.stop_requested() else SAVE_CHECKPOINT if pace.is_due() else CONTINUE_TRAINING
            )
            if wish != CONTINUE_TRAINING:
                with pace.measure_save():
                    report_checkpoint(training)
                    training.all_reduce_max(
                        CONTINUE_TRAINING
                    )  # Ray lets the others go before the first has stored it: their clocks ran
            if wish == STOP_TRAINING and training.status is None:
                return None
    return finish_run(training, config, out)


def finish_run(training: Training, config: TrainConfig, out: Path) -> dict[str, Any]:
    """The record of a training that ended; leaves its last state and its weights."""
    assert training.status is not None  # noqa: S101 - its laps are over
    failed = training.status == "failed"
    test = None if failed else training.evaluate(training.workload.test)
    if not failed:
        report_checkpoint(training)
    if training.rank == 0 and not failed:
        weights = {name: value.cpu().contiguous() for name, value in training.model.state_dict().items()}
        with atomic_write(out / "model.safetensors") as temporary:
            facts = {"classes": json.dumps(list(training.workload.classes))}
            temporary.write_bytes(save(weights, facts))  # save_file would leave it readable by its owner alone
    return Record(
        config=config,
        machine=describe_hardware(training.device),
        laps=training.finished_laps,
        status=training.status,
        reason=training.reason,
        target=training.target,
        examples_to_target=training.examples_to_target,
        test=test,
    ).to_json()


def report_checkpoint(training: Training) -> None:
    """Hand Ray a checkpoint. A barrier over all workers: the loop's clock is stopped here."""
    metrics = {"step": training.step, "seen": training.examples_seen}
    if training.rank:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_file(training.state_dict(), Path(folder, TRAINING_STATE_FILE))
        write_json(Path(folder, LAPS_FILE), [asdict(lap) for lap in training.finished_laps])
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def restore_training(training: Training, folder: Path) -> None:
    """Go on from what `report_checkpoint` kept."""
    laps = [Lap(**lap) for lap in read_json(folder / LAPS_FILE)]
    training.load_state_dict(load_file(folder / TRAINING_STATE_FILE), laps)
