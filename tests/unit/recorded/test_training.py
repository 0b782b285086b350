"""Training runs stay what they were: the same data in the same order, the same model and steps."""

import pytest

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from tests.support.recorded import assert_as_recorded

CONFIGS = {
    "sgd": {"workload": "digits", "batch_size": 32, "lr": 0.05, "warmup": 0.0},
    "adamw": {"workload": "digits", "batch_size": 32, "lr": 0.002, "optimizer": "adamw", "warmup": 0.1},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_short_run_is_as_recorded(name):
    training = Training(
        TrainConfig(**CONFIGS[name], max_examples=512, eval_every=64, noise_scale_every=2, target=2.0, threads=1)
    )
    laps = list(training.laps())
    norms = [float(parameter.detach().norm()) for parameter in training.model.parameters()]
    values = {
        "seen": [lap.seen for lap in laps],
        "losses": [lap.loss for lap in laps],
        "metrics": [lap.metric or 0.0 for lap in laps],
        "weight norms": norms,
        "gradient norms": [lap.total_norm or 0.0 for lap in laps],
    }
    assert_as_recorded(f"training-{name}", values, rtol=2e-3, atol=2e-3)
