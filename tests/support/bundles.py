"""Bundles for tests: short training runs, their folders as jobs.train writes them, and their publication."""

from pathlib import Path

import pandas as pd
from safetensors.torch import save_file

from equipoise.config import TrainConfig
from equipoise.storage.atomic import write_json
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record
from jobs.publishing.publish import PublishRequest, publish_bundle


def train_short_run(folder: Path, workload: str = "digits", examples: int = 3200, seed: int = 0) -> Path:
    """Train until `examples` have been seen, write the folder of the run and return it."""
    training = Training(
        TrainConfig(workload=workload, batch_size=32, lr=0.1, max_examples=examples, target=2.0, seed=seed)
    )
    for _ in training.laps():
        pass
    return write_run_folder(training, folder)


def train_table(folder: Path, table: pd.DataFrame, label: str, examples: int = 6000) -> Path:
    """Train on a table, which is kept beside the run, write the folder of the run and return it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder.with_suffix(".csv"), index=False)
    data = str(folder.with_suffix(".csv"))
    training = Training(
        TrainConfig(workload="table", data=data, label=label, batch_size=32, lr=0.01, max_examples=examples)
    )
    for _ in training.laps():
        pass
    return write_run_folder(training, folder)


def write_run_folder(training: Training, folder: Path) -> Path:
    """Write model.safetensors and record.json of a finished run, as jobs.train does, and return the folder."""
    folder.mkdir(parents=True)
    weights = {name: value.contiguous() for name, value in training.model.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    write_json(folder / "record.json", build_run_record(training).to_json())
    return folder


def publish_run(run: Path, out: Path, drift: bool = False) -> Path:
    """Publish a run as a bundle and return its folder; a drift profile takes seconds and is built only on request."""
    publish_bundle(PublishRequest(run=run, out=out, native=False, drift=drift))
    return out
