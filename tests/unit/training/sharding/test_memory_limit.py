"""A model whose whole replicas no worker can hold trains under --sharding full."""

from dataclasses import replace
from statistics import mean

import pytest

from equipoise.config import TrainConfig
from tests.support.gloo import run_with_gloo
from tests.support.limited_training import train_in_limit

CONFIG = TrainConfig(
    workload="digits", optimizer="adamw", batch_size=4, lr=1e-3, noise_scale_every=0, max_examples=1 << 20
)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2])  # four workers take three times as long
def test_parts_of_a_model_fit_where_whole_replicas_do_not(workers, tmp_path):
    whole, parts = (replace(CONFIG, workers=workers, sharding=sharding) for sharding in ("none", "full"))
    free = {
        config.sharding: run_with_gloo(workers, tmp_path, train_in_limit, config, tmp_path, None)
        for config in (whole, parts)
    }
    peaks = {sharding: [run.peak_bytes for run in runs] for sharding, runs in free.items()}
    print({sharding: [round(peak / 1e6, 1) for peak in values] for sharding, values in peaks.items()})
    limit = round(mean((max(peaks["full"]), min(peaks["none"]))))
    limited = run_with_gloo(workers, tmp_path, train_in_limit, parts, tmp_path, limit)
    for run, other in zip(limited, free["none"], strict=True):
        assert run.losses == pytest.approx(other.losses, rel=1e-4)
    assert not list(tmp_path.glob("out-of-memory-*"))
    with pytest.raises((RuntimeError, MemoryError)):
        run_with_gloo(workers, tmp_path, train_in_limit, whole, tmp_path, limit)
    assert list(tmp_path.glob("out-of-memory-*"))
