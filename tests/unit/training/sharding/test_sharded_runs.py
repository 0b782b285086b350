"""--sharding none as tests/support trains it: the measure of all other kinds."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from tests.support.sharded_runs import are_equal, largest_difference, train_sharded

MLP = TrainConfig(
    workload="tests.support.sharded_workloads:wide_mlp",
    batch_size=4,
    workers=2,
    target=2.0,
    max_examples=80,
    eval_every=40,
    precision="fp64",
)


def test_runs_join_what_their_workers_save(tmp_path):
    gpt = replace(MLP, workload="tests.support.sharded_workloads:gpt", target=0.0)
    (mlp, text), (alone, text_alone) = (train_sharded(count, tmp_path, [MLP, gpt]) for count in (2, 1))
    for run, expected in ((mlp, alone), (text, text_alone)):
        assert largest_difference(run.state, expected.state) < 1e-13
        assert run.laps[-1].step == expected.laps[-1].step == 10
    half = train_sharded(2, tmp_path, [MLP], num_laps=1)
    (resumed,) = train_sharded(2, tmp_path, [MLP], half)
    assert are_equal(resumed.state, mlp.state)
    assert resumed.laps[-1].loss == pytest.approx(alone.laps[-1].loss)
