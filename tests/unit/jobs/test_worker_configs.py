"""Configurations of workers and metrics of trials survive the dictionaries in which Ray passes them on."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from equipoise.config import TrainConfig
from jobs.cluster.resources import worker_resources
from jobs.ray_train.run import resolve_trial_paths
from jobs.ray_train.worker import TrainWorkerConfig
from jobs.ray_tune.trial_messages import TrialMetrics, TrialWorkerConfig
from jobs.ray_tune.trial_records import strip_trial_setting
from jobs.timing.step_timing import TimingWorkerConfig

CONFIG = TrainConfig(workload="digits", lr=np.float64(0.1), target=0.9, init_from="torchvision")


@pytest.mark.parametrize(
    "worker_config",
    [
        TrainWorkerConfig(config=CONFIG, resolved_config=replace(CONFIG, data="/data"), out="s3://bucket/run"),
        TimingWorkerConfig(
            trial=CONFIG,
            batches_by_workers={1: [8, 16], 2: [8]},
            folder="s3://bucket/sweep/system",
            max_seconds=12.0,
        ),
        TrialWorkerConfig(trial=CONFIG, path="/runs/trial.json", gpu=True),
    ],
)
def test_worker_config_survives_a_dictionary(worker_config):
    assert type(worker_config).from_dict(asdict(worker_config)) == worker_config


def test_metrics_are_selected_from_a_result_of_tune():
    metrics = TrialMetrics(seen=640, metric=0.5, loss=1.0, busy=0.4, done=True, fresh=True, since=0.5)
    assert TrialMetrics.from_result(asdict(metrics) | {"trial_id": "1", "config/trial/lr": 0.1}) == metrics


def test_trial_without_a_report_has_seen_nothing():
    metrics = TrialMetrics.from_result({})
    assert (metrics.seen, metrics.busy, metrics.fresh, metrics.places) == (0, 0.0, False, "")
    assert math.isnan(metrics.loss) and math.isnan(metrics.metric)  # 0 would be the best of losses


def test_paths_become_absolute_except_the_name_of_published_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_trial_paths(CONFIG) == replace(CONFIG, data=str(tmp_path / "data"))
    assert resolve_trial_paths(replace(CONFIG, init_from="runs/x")).init_from == str(tmp_path / "runs" / "x")
    assert resolve_trial_paths(replace(CONFIG, init_from="s3://bucket/x")).init_from == "s3://bucket/x"
    for url in ("s3://bucket/photos", "file:///shared/photos"):  # copied by each node, not read in place
        assert resolve_trial_paths(replace(CONFIG, data=url)).data == url


def test_trials_of_one_sweep_differ_only_in_their_setting():
    other = replace(CONFIG, workers=2, batch_size=64, grad_accumulation=3, lr=0.5, seed=7)
    assert strip_trial_setting(other) == strip_trial_setting(CONFIG)
    assert strip_trial_setting(replace(other, momentum=0.5)) != strip_trial_setting(CONFIG)


def test_worker_reserves_a_gpu_only_if_it_trains_on_one():
    assert worker_resources(2, gpu=False) == {"CPU": 2}
    assert worker_resources(2, gpu=True) == {"CPU": 2, "GPU": 1}
