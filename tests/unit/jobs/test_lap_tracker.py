"""Laps of a real run in the trackers' own files."""

import struct
from dataclasses import replace
from itertools import islice

import pytest

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.run_record import build_run_record
from jobs.ray_train.lap_tracker import TRACKER_PROJECT, WANDB_ID_FILE, LapTracker, lap_metrics, open_lap_tracker

CONFIG = TrainConfig(workload="digits", max_examples=2000, eval_every=500, target=2.0, seed=3)
LAP_METRICS = {"loss", "lr", "examples_per_second", "step", "metric"}


def build_tracker_data(num_laps=4):
    """Return the first laps of a run of four, and the record that it has after them."""
    training = Training(CONFIG)
    laps = list(islice(training.laps(), num_laps))
    return laps, replace(build_run_record(training), test=0.75)


def log_run(name, out):
    """Track a run that is stopped after two laps and resumed, and return its laps."""
    laps, record = build_tracker_data()
    out.mkdir()
    with open_lap_tracker(name, out, CONFIG) as tracker:
        for lap in laps[:2]:
            tracker.log_lap(lap)
    with open_lap_tracker(name, out, CONFIG) as tracker:
        for lap in laps[2:]:
            tracker.log_lap(lap)
        tracker.log_record(record)
    return laps


def read_event_file(path):
    """Yield the events of an event file: each has its length, a checksum, the event and a checksum."""
    from tensorboardX.proto.event_pb2 import Event

    content = path.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard_has_every_lap_over_the_examples_seen(tmp_path):
    laps = log_run("tensorboard", tmp_path / "run")
    files = sorted((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))
    rows = [
        (value.tag, event.step, value)
        for file in files
        for event in read_event_file(file)
        for value in event.summary.value
    ]
    scalars = {(tag, step): value.simple_value for tag, step, value in rows if value.HasField("simple_value")}
    for lap in laps:
        for name, expected in lap_metrics(lap).items():
            assert scalars[name, lap.seen] == pytest.approx(expected, rel=1e-6)
    assert scalars["test", laps[-1].seen] == 0.75
    assert {tag for tag, _ in scalars} == LAP_METRICS | {"test"}
    texts = {tag: value.tensor.string_val[0].decode() for tag, _, value in rows if value.tensor.string_val}
    assert "seed: 3" in texts["config/text_summary"] and texts["status/text_summary"] == "max examples"


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_mlflow_has_one_run_with_every_lap(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed here")
    laps = log_run("mlflow", tmp_path / "run")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(TRACKER_PROJECT)
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.tags["status"] == "max examples"
    assert run.data.params["seed"] == "3" and run.data.metrics["test"] == 0.75
    for name in LAP_METRICS:
        history = {row.step: row.value for row in client.get_metric_history(run.info.run_id, name)}
        assert history == {lap.seen: pytest.approx(lap_metrics(lap)[name]) for lap in laps}


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_mlflow_marks_a_stopped_run(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed here")
    with open_lap_tracker("mlflow", tmp_path, CONFIG) as tracker:
        tracker.log_lap(build_tracker_data(num_laps=1)[0][0])
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name(TRACKER_PROJECT).experiment_id])
    assert run.info.status == "KILLED"


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_wandb_continues_the_same_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed here")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    log_run("wandb", tmp_path / "run")
    run_id = (tmp_path / "run" / WANDB_ID_FILE).read_text()
    folders = list((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert folders and all(folder.name.endswith(run_id) for folder in folders)
    assert sum(file.stat().st_size for folder in folders for file in folder.glob("*.wandb")) > 1000


def test_tracker_gets_only_what_was_measured():
    lap = replace(build_tracker_data(num_laps=1)[0][0], loss=None, lr=None, metric=None)
    assert lap_metrics(lap) == {"examples_per_second": lap.examples / lap.seconds, "step": lap.step}
    assert lap_metrics(replace(lap, metric=0.0, loss=0.0)).keys() == LAP_METRICS - {"lr"}  # zero is a value


def test_run_without_a_tracker_writes_nothing(tmp_path):
    with open_lap_tracker(None, tmp_path, CONFIG) as tracker:
        assert type(tracker) is LapTracker
        tracker.log_lap(build_tracker_data(num_laps=1)[0][0])
    assert list(tmp_path.iterdir()) == []
