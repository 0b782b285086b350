import pytest
from torch import nn

from equipoise.trial import Trial
from jobs.trials import split_matters, trial_of

BASE = Trial(workload="digits")


def test_a_trial_takes_the_same_global_batch_whoever_runs_it():
    for real in (False, True):
        for split in (False, True):
            trial = trial_of(BASE, (96, 0.1, 3), 3, real, split)
            assert (trial.global_batch, trial.lr, trial.seed) == (96, 0.1, 3)
            assert trial.workers == (3 if real else 1)


def test_a_worker_that_stands_for_others_takes_their_parts_in_turn_where_the_split_matters():
    assert trial_of(BASE, (96, 0.1, 0), 3, False, True).accumulate == 3
    assert trial_of(BASE, (96, 0.1, 0), 3, False, False).batch == 96


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(4), nn.Dropout(0.1)])
def test_the_split_matters_to_layers_that_look_at_others_or_draw(layer):
    assert split_matters(nn.Sequential(nn.Linear(2, 2), layer))
    assert not split_matters(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
