"""--sharding tensor:K: the steps of one process, whatever each worker holds and computes of a layer."""

from dataclasses import replace

import pytest
import torch.distributed as dist

from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.sharded_runs import are_equal, largest_difference, train_parts, train_sharded
from tests.support.tensor_parallel_cases import ADAMW, DROPOUT, GPT, SGD, build_config, build_configs


def divide(configs, parts):
    return [replace(config, sharding=f"tensor:{parts}") for config in configs]


def compare_with_one_process(folder, configs, workers, parts):
    """Train by one process and by workers that hold parts; return the laps of the workers."""
    alone = train_sharded(1, folder, configs)
    divided = train_sharded(workers, folder, divide(configs, parts))
    for config, whole, run in zip(configs, alone, divided, strict=True):
        assert largest_difference(run.state, whole.state) < 1e-13, config
        assert largest_difference(run.state, whole.state, "optimizer.") < 1e-11, config
        for lap, expected in zip(run.laps, whole.laps, strict=True):
            assert lap.step == expected.step and lap.draws == 0
            assert lap.loss == pytest.approx(expected.loss, rel=1e-12)
            assert lap.metric == pytest.approx(expected.metric, rel=1e-12)
    return [run.laps for run in divided]


def test_two_workers_take_the_steps_of_one_process(tmp_path):
    configs = [
        build_config("digits", 2, steps=20, grad_accumulation=2, **SGD),
        build_config(DROPOUT, 2, steps=20, **ADAMW),
        build_config(GPT, 2, steps=20, **ADAMW),
    ]
    laps = compare_with_one_process(tmp_path, configs, workers=2, parts=2)
    # two micro-batches of 4 outputs of 10 numbers; the input, which is data, has no gradient; and a norm
    assert (laps[1][0].sent_bytes, laps[1][0].rounds) == (2 * 4 * 10 * 8 + 8, 2 * 2 + 2)
    # outputs and gradients of inputs, of attention and feed-forward of two blocks: 4 windows of 12 tokens, 16 wide
    assert laps[2][0].sent_bytes == 2 * 2 * 2 * 2 * 4 * 12 * 16 * 8 + 8
    assert all(lap.exchange_seconds > 0 for lap in laps[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "parts"), [(2, 2), *(pytest.param(4, n, marks=pytest.mark.thorough) for n in (2, 4))]
)
def test_workers_take_the_steps_of_one_process(tmp_path, workers, parts):
    compare_with_one_process(tmp_path, build_configs(workers), workers, parts)


@pytest.mark.thorough
def test_three_workers_divide_what_they_can(tmp_path):
    # six channels of LeNet's first convolution and its 120 units, and 96 units of the wide layers
    configs = [config for config in build_configs(3) if config.workload not in (DROPOUT, GPT)]
    compare_with_one_process(tmp_path, configs, workers=3, parts=3)


@pytest.mark.slow
def test_a_compiled_model_takes_the_same_steps(tmp_path):
    config = build_config("digits", 2, steps=10, **ADAMW)
    (whole,) = train_sharded(1, tmp_path, [config])
    (run,) = train_sharded(2, tmp_path, divide([replace(config, compile=True)], 2))
    assert largest_difference(run.state, whole.state) < 1e-13


@pytest.mark.parametrize(
    "workload", ["digits", pytest.param(GPT, marks=pytest.mark.slow), pytest.param(DROPOUT, marks=pytest.mark.slow)]
)
def test_a_run_goes_on_with_and_without_parts(tmp_path, workload):
    whole = build_config(workload, 2, steps=10, keep="best", **ADAMW)
    (parts,) = divide([whole], 2)
    (expected,) = train_sharded(1, tmp_path, [whole])
    (half,) = train_sharded(1, tmp_path, [whole], num_laps=1)
    (half_of_parts,) = train_sharded(2, tmp_path, [parts], num_laps=1)
    (alone,) = train_sharded(1, tmp_path, [whole], [half_of_parts])
    resumed, joined, uninterrupted = train_sharded(2, tmp_path, [parts] * 3, [half_of_parts, half, None])
    assert are_equal(resumed.state, uninterrupted.state)  # to the bit
    for run in (alone, joined, uninterrupted):
        for prefix in ("model.", "best.", "optimizer."):
            assert largest_difference(run.state, expected.state, prefix) < 1e-11
        assert run.laps[-1].step == expected.laps[-1].step == 10


def train_kept(config):
    """Return what a worker holds while it trains, then the whole model of the kept weights and its metric."""
    training = Training(config)
    assert training.fits_in_memory()
    held = {name: (value.nbytes, value.untyped_storage().nbytes()) for name, value in training.model.named_parameters()}
    for _ in training.laps():
        pass
    training.load_kept_weights()
    kept = {name: value.clone() for name, value in training.model.state_dict().items()}
    return held, kept, training.evaluate(training.workload.validation)


def test_workers_hold_parts_and_end_with_the_whole_model(tmp_path):
    config = build_config("digits", 2, steps=10, keep="best", **SGD)
    whole_sizes, whole, metric = train_kept(config)
    for held, kept, metric_of_parts in run_with_gloo(2, tmp_path, train_kept, *divide([config], 2)):
        assert largest_difference(kept, whole, prefix="") < 1e-13
        assert metric_of_parts == pytest.approx(metric)
        assert all(size == memory for size, memory in held.values())
        for name in ("body.0.weight", "body.3.bias", "body.7.weight", "body.7.bias", "body.9.weight"):
            assert held[name][0] == whole_sizes[name][0] / 2
        for name in ("body.9.bias", "head.weight"):
            assert held[name] == whole_sizes[name]


def compare_whole_weights(config):
    """Return the largest difference between the whole weights of two workers, and the last loss."""
    training = Training(config)
    for _ in training.laps():
        pass
    differences = []
    for name, value in training.sharded.list_weights().items():
        if training.sharded.find_slice(name) is None:
            mean = value.clone()
            dist.all_reduce(mean)
            differences.append(float((mean / 2 - value).abs().max()))
    return max(differences), training.finished_laps[-1].loss


def test_workers_of_a_replica_have_equal_whole_weights_in_bf16(tmp_path):
    config = build_config(DROPOUT, 2, steps=10, **{**ADAMW, "precision": "bf16"})
    laps = train_parts([config], [None], None)[0][1]
    for difference, loss in run_with_gloo(2, tmp_path, compare_whole_weights, *divide([config], 2)):
        assert difference == 0
        assert loss == pytest.approx(laps[-1].loss, rel=0.05)


def refuse_to_divide(config):
    with raises_code("sharding-unusable", "tensor:3", "64 units", "--sharding full"):
        Training(config)


@pytest.mark.slow
def test_a_model_that_cannot_be_divided_is_refused_by_all_workers(tmp_path):
    run_with_gloo(3, tmp_path, refuse_to_divide, *divide([build_config(DROPOUT, 3)], 3))
