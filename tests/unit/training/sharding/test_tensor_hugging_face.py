"""--sharding tensor:K with blocks of transformers: divided where it can be told safely, and always the same steps."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from equipoise.training.sharding.tensor.tensor_plan import plan_tensor_sharding
from tests.support.sharded_runs import largest_difference, train_sharded
from tests.support.tensor_parallel_cases import ADAMW, build_config
from tests.support.transformers_workloads import build_gpt2, build_llama

pytestmark = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: make test-frameworks"
)


def test_heads_with_dropout_stay_whole():
    assert plan_tensor_sharding(build_llama(), 2).num_weighted == 2 * (4 + 3)
    assert plan_tensor_sharding(build_gpt2(0.0), 2).num_weighted == 2 * (2 + 2)
    assert plan_tensor_sharding(build_gpt2(0.1), 2).num_weighted == 2 * 2
    assert plan_tensor_sharding(build_llama(), 4).num_weighted == 2 * 3  # of two heads of keys and values


def test_blocks_of_transformers_take_the_steps_of_one_process(tmp_path):
    names = "llama", "gpt2", "gpt2_with_dropout"
    configs = [
        build_config(f"tests.support.transformers_workloads:{name}", 2, **{**ADAMW, "target": 0.0}) for name in names
    ]
    parts = train_sharded(2, tmp_path, [replace(config, sharding="tensor:2") for config in configs])
    for run, whole in zip(parts, train_sharded(1, tmp_path, configs), strict=True):
        assert largest_difference(run.state, whole.state) < 1e-13
    # two sums in each half of two blocks, of 2 micro-batches of 4 windows of 12 tokens, 32 wide; and a norm
    assert [run.laps[0].sent_bytes for run in parts[:2]] == [2 * 2 * 2 * 2 * 4 * 12 * 32 * 8 + 8] * 2
