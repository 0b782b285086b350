from equipoise.config import TrainConfig
from jobs.ray_tune.single_worker_trial import build_trial_config

BASE = TrainConfig(workload="digits")


def test_trial_has_the_same_global_batch_on_real_workers_and_on_one():
    for real_workers in (False, True):
        for max_unsplit_batch in (0, 96):
            trial = build_trial_config(BASE, (96, 0.1, 3), 3, real_workers, max_unsplit_batch)
            assert (trial.global_batch, trial.lr, trial.seed) == (96, 0.1, 3)
            assert trial.workers == (3 if real_workers else 1)


def test_single_worker_splits_a_batch_that_is_too_large_to_take_at_once():
    assert build_trial_config(BASE, (96, 0.1, 0), 3, False, 95).grad_accumulation == 3
    assert build_trial_config(BASE, (96, 0.1, 0), 3, False, 96).batch_size == 96
