import pytest
from torch import nn

from equipoise.config import TrainConfig
from jobs.ray_tune.single_worker_trial import build_trial_config, depends_on_batch_split

BASE = TrainConfig(workload="digits")


def test_a_trial_takes_the_same_global_batch_whoever_runs_it():
    for real in (False, True):
        for whole in (0, 96):
            trial = build_trial_config(BASE, (96, 0.1, 3), 3, real, whole)
            assert (trial.global_batch, trial.lr, trial.seed) == (96, 0.1, 3)
            assert trial.workers == (3 if real else 1)


def test_a_worker_that_stands_for_others_takes_their_parts_in_turn_where_it_may_not_take_all_at_once():
    assert build_trial_config(BASE, (96, 0.1, 0), 3, False, 95).grad_accumulation == 3
    assert build_trial_config(BASE, (96, 0.1, 0), 3, False, 96).batch_size == 96


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Dropout(0.1)])
def test_the_split_matters_to_layers_that_look_at_others_or_draw(layer):
    assert depends_on_batch_split(nn.Sequential(nn.Linear(2, 2), layer))
    assert not depends_on_batch_split(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
