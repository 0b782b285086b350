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

from equipoise.config import Trial
from equipoise.hardware import machine
from equipoise.runs.record import Lap, Record
from equipoise.storage import atomic as store
from equipoise.storage import object_store
from equipoise.training.loop import Training
from jobs.ray_train.checkpoints import LAPS, STATE, Pace
from jobs.ray_train.run_channel import onlookers

GO_ON, SAVE, STOP = range(3)


def worker(config: dict[str, Any]) -> dict[str, Any] | None:
    """Train, resuming from the last checkpoint; rank 0 returns the record, or None if it was stopped."""
    trial, out = Trial(**config["trial"]), object_store.place(config["out"])
    torch.set_num_threads(trial.threads)
    training = Training(replace(trial, **config["places"]), device=ray.train.torch.get_device())
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            restore(training, Path(folder))
    pace = Pace()
    with onlookers(out, training.done, training.rank) as seen:
        for lap in training.laps():
            seen.add(lap)
            wish = training.agree(STOP if seen.stop() else SAVE if pace.due() else GO_ON)
            if wish != GO_ON:
                with pace.timed():
                    report(training)
                    training.agree(GO_ON)  # Ray lets the others go before the first has stored it: their clocks ran
            if wish == STOP and training.ended is None:
                return None
    return finished(training, trial, out)


def finished(training: Training, trial: Trial, out: Path) -> dict[str, Any]:
    """The record of a training that ended; leaves its last state and its weights."""
    failed = str(training.ended).startswith("failed")
    test = None if failed else training.metric(training.workload.test)
    if not failed:
        report(training)
    if training.rank == 0 and not failed:
        weights = {name: value.cpu().contiguous() for name, value in training.model.state_dict().items()}
        with store.whole(out / "model.safetensors") as temporary:
            facts = {"classes": json.dumps(list(training.workload.classes))}
            temporary.write_bytes(save(weights, facts))  # save_file would leave it readable by its owner alone
    return Record(
        trial=trial,
        machine=machine(training.device),
        laps=training.done,
        ended=str(training.ended),
        target=training.target,
        examples_to_target=training.crossing,
        test=test,
    ).to_json()


def report(training: Training) -> None:
    """Hand Ray a checkpoint. A barrier over all workers: the loop's clock is stopped here."""
    metrics = {"step": training.step, "seen": training.seen}
    if training.rank:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_file(training.state(), Path(folder, STATE))
        store.write_json(Path(folder, LAPS), [asdict(lap) for lap in training.done])
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def restore(training: Training, folder: Path) -> None:
    """Go on from what `report` kept."""
    laps = [Lap(**lap) for lap in store.read_json(folder / LAPS)]
    training.load(load_file(folder / STATE), laps)
