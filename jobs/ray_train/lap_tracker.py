"""Experiment trackers that show the laps of a single run, as its driver reads them, over the examples seen."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap, Record
from equipoise.storage.object_store import RemotePath
from jobs.ray_train.trackers import TRACKER_PROJECT, TrackerName

WANDB_ID_FILE = "wandb-id"  # in the run's folder: the same command resumes the same run in W&B


@contextmanager
def open_lap_tracker(name: TrackerName | None, out: Path, config: TrainConfig) -> Iterator["LapTracker"]:
    """Open the tracker of a run for the `with` block; a run that is resumed continues in the tracker too."""
    tracker = LAP_TRACKERS[name](out, config) if name else LapTracker()
    try:
        yield tracker
    finally:
        tracker.close()


class LapTracker:
    """Tracker of a run; this one, for a run without --track, shows nothing."""

    def log_lap(self, lap: Lap) -> None:
        """Show the measurements of a lap."""

    def log_record(self, record: Record) -> None:
        """Show how the run ended."""

    def close(self) -> None:
        """Write what has not been written yet."""


class TensorBoardTracker(LapTracker):
    """Tracker that writes event files for TensorBoard."""

    def __init__(self, out: Path, config: TrainConfig) -> None:
        from tensorboardX import SummaryWriter  # comes with ray[tune]

        # by the second alone, a run that is resumed at once would overwrite its first file
        self.writer = SummaryWriter(logdir=str(out / "tensorboard"), filename_suffix=f".{uuid4().hex}")
        self.writer.add_text("config", "  \n".join(f"{name}: {value}" for name, value in asdict(config).items()))

    def log_lap(self, lap: Lap) -> None:
        """Write the measurements of a lap as scalars."""
        for name, value in lap_metrics(lap).items():
            self.writer.add_scalar(name, value, lap.seen)

    def log_record(self, record: Record) -> None:
        """Write the status as text and the test metric as a scalar."""
        self.writer.add_text("status", record.outcome)
        for name, value in record_metrics(record).items():
            self.writer.add_scalar(name, value, examples_seen(record))

    def close(self) -> None:
        """Flush and close the event file."""
        self.writer.close()


class MlflowTracker(LapTracker):
    """Tracker that writes to a database of MLflow in the run's folder, which holds this run alone."""

    def __init__(self, out: Path, config: TrainConfig) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self.client, self.metric_type = MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}"), Metric
        experiment = self.client.get_experiment_by_name(TRACKER_PROJECT)
        experiment_id = (
            experiment.experiment_id
            if experiment
            else self.client.create_experiment(TRACKER_PROJECT, artifact_location=(out / "mlflow").absolute().as_uri())
        )
        runs = self.client.search_runs([experiment_id], max_results=1)
        self.run_id = (runs[0] if runs else self.client.create_run(experiment_id, run_name=out.name)).info.run_id
        self.client.update_run(self.run_id, status="RUNNING")
        params = [Param(name, str(value)) for name, value in asdict(config).items()]
        self.client.log_batch(self.run_id, params=params)
        self.end_status = "KILLED"

    def log_lap(self, lap: Lap) -> None:
        """Write the measurements of a lap."""
        self._log_metrics(lap_metrics(lap), lap.seen)

    def log_record(self, record: Record) -> None:
        """Write the test metric and the status."""
        self._log_metrics(record_metrics(record), examples_seen(record))
        self.client.set_tag(self.run_id, "status", record.outcome)
        self.end_status = "FAILED" if record.failed else "FINISHED"

    def close(self) -> None:
        """Mark the run as ended."""
        self.client.set_terminated(self.run_id, self.end_status)

    def _log_metrics(self, metrics: dict[str, float], seen: int) -> None:
        now = int(1000 * time.time())
        rows = [self.metric_type(name, value, now, seen) for name, value in metrics.items()]
        self.client.log_batch(self.run_id, rows)


class WandbTracker(LapTracker):
    """Tracker that sends to Weights & Biases, by the settings and the key of its own command line."""

    def __init__(self, out: Path, config: TrainConfig) -> None:
        import wandb

        id_file = out / WANDB_ID_FILE
        if not id_file.exists():
            id_file.write_text(uuid4().hex)
        self.run: Any = wandb.init(
            project=TRACKER_PROJECT,
            name=out.name,
            id=id_file.read_text(),
            resume="allow",
            config=asdict(config),
            dir=None if isinstance(out, RemotePath) else str(out),
        )
        self.exit_code = 1

    def log_lap(self, lap: Lap) -> None:
        """Send the measurements of a lap."""
        self.run.log(lap_metrics(lap), step=lap.seen)

    def log_record(self, record: Record) -> None:
        """Send the status and the test metric as the summary of the run."""
        self.run.summary.update({"status": record.outcome} | record_metrics(record))
        self.exit_code = int(record.failed)

    def close(self) -> None:
        """Send what is left and end the run."""
        self.run.finish(exit_code=self.exit_code)


LAP_TRACKERS: dict[TrackerName, type[TensorBoardTracker | MlflowTracker | WandbTracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
    "wandb": WandbTracker,
}


def lap_metrics(lap: Lap) -> dict[str, float]:
    """Return the measurements of a lap for a tracker; those that were measured."""
    rate = lap.examples / lap.seconds
    metrics = {
        "loss": lap.loss,
        "lr": lap.lr,
        "examples_per_second": rate,
        "step": lap.step,
        "metric": lap.metric,
    }
    return {name: value for name, value in metrics.items() if value is not None}


def record_metrics(record: Record) -> dict[str, float]:
    """Return the results of a whole run for a tracker: the test metric and the examples to the target, if known."""
    results = {"test": record.test, "examples_to_target": record.examples_to_target}
    return {name: value for name, value in results.items() if value is not None}


def examples_seen(record: Record) -> int:
    """Return the examples that a run had seen at its end."""
    return record.laps[-1].seen if record.laps else 0
