"""The average of weights against torch's own, on any number of workers, and resumed to the bit."""

from dataclasses import replace
from itertools import islice

import pytest
import torch
from safetensors.torch import load, save
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from equipoise.config import TrainConfig
from equipoise.runs.run_end import find_best_lap
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.sharded_runs import are_equal, train_sharded

AVERAGED = TrainConfig(
    workload="digits",
    batch_size=16,
    average_weights=0.9,
    target=2.0,
    max_examples=320,
    eval_every=160,
    warmup=0,
    precision="fp64",
)


def copy_weights(training):
    return {name: value.clone() for name, value in training.model.state_dict().items()}


def take_average(training):
    return {name: value.clone() for name, value in training.kept_weights.average.tensors.items()}


@pytest.mark.parametrize(
    "changes",
    [{}, {"workload": "tests.support.workloads:with_batch_norm", "channels_last": True, "optimizer": "adamw"}],
)
def test_average_is_that_of_torch_and_evaluated_in_place_of_the_weights(changes):
    config = replace(AVERAGED, lr=0.01, eval_every=16, **changes)  # an evaluation after each step
    averaged, plain = Training(config), Training(replace(config, average_weights=0.0))
    reference = AveragedModel(plain.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for lap, _ in zip(averaged.laps(), plain.laps(), strict=True):
        assert are_equal(copy_weights(averaged), copy_weights(plain))  # training is not changed
        reference.update_parameters(plain.model)
        expected = {name: value.detach() for name, value in reference.module.named_parameters()}
        assert are_equal(take_average(averaged), expected)
        reference.module.eval()
        scores = torch.cat([reference.module(x).argmax(1) == y for x, y in validation_batches(plain)])
        assert lap.metric == pytest.approx(float(scores.double().mean()))
    averaged.load_kept_weights()
    assert are_equal(copy_weights(averaged), {n: v.detach() for n, v in reference.module.state_dict().items()})
    assert averaged.evaluate(averaged.workload.validation) == lap.metric


def validation_batches(training):
    return training.loader.eval_batches(training.workload.validation, 0, 1, 64)


def test_best_weights_are_averages_too():
    config = replace(AVERAGED, lr=0.2, max_examples=1280, keep="best")
    training, averages = Training(config), []
    for _ in training.laps():
        averages.append(take_average(training))
    best = training.finished_laps.index(find_best_lap(training.finished_laps, training.target))
    training.load_kept_weights()
    assert are_equal(copy_weights(training), averages[best])
    assert training.evaluate(training.workload.validation) == training.finished_laps[best].metric


@pytest.mark.parametrize("num_laps", [0, 1, 3])
def test_a_resumed_run_has_the_same_average_to_the_bit(num_laps):
    config = replace(AVERAGED, eval_every=80, keep="best", precision="fp32")
    whole, start = Training(config), Training(config)
    list(whole.laps())
    list(islice(start.laps(), num_laps))
    resumed = Training(config)
    resumed.load_state_dict(load(save(start.state_dict())), start.finished_laps)
    list(resumed.laps())
    assert are_equal(resumed.state_dict(), whole.state_dict())
    assert sum(name.startswith("average.") for name in resumed.state_dict()) == len(resumed.trainable_parameters)
    assert [lap.metric for lap in resumed.finished_laps] == [lap.metric for lap in whole.finished_laps]


def train_kept(configs):
    """Return the kept weights and the metrics of each run."""
    results = []
    for config in configs:
        training = Training(config)
        metrics = [lap.metric for lap in training.laps()]
        training.load_kept_weights()
        results.append((copy_weights(training), metrics))
    return results


EXCHANGES = [{}, {"sync": "server", "servers": 2}, {"sharding": "optimizer"}]
SHARDINGS = [{"sharding": kind, "mixup": 0.3} for kind in ("full", "tensor:2", "pipeline:2")]


@pytest.mark.parametrize(
    "changes", [EXCHANGES, pytest.param(SHARDINGS, marks=pytest.mark.slow)], ids=["whole", "parts"]
)
def test_workers_keep_the_average_of_one_however_they_exchange(tmp_path, changes):
    config = replace(AVERAGED, workers=2, batch_size=8)
    alone = train_kept([replace(config, mixup=changes[-1].get("mixup", 0.0))])[0]
    for results in run_with_gloo(2, tmp_path, train_kept, [replace(config, **options) for options in changes]):
        for weights, metrics in results:
            assert metrics == alone[1]
            for name, value in weights.items():
                torch.testing.assert_close(value, alone[0][name], rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_a_run_goes_on_with_parts_of_the_average_and_without(tmp_path):
    config = replace(AVERAGED, workers=2, batch_size=8, max_examples=160, eval_every=80, keep="best")
    changes = [{}, {"sharding": "full"}]
    configs = [replace(config, **changes[0]), replace(config, **changes[1])]
    whole = train_sharded(2, tmp_path, configs)
    starts = train_sharded(2, tmp_path, configs, num_laps=1)
    crossed = train_sharded(2, tmp_path, configs[::-1], starts)
    names = {name for name in whole[0].state if name.startswith("average.")}
    assert names and all(names <= run.state.keys() for run in (*whole, *crossed))
    for run in (whole[1], *crossed):
        for name in names:
            torch.testing.assert_close(run.state[name], whole[0].state[name], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("sync", ["local:4", "diloco:4", "async:1"])
def test_weights_that_differ_between_workers_are_not_averaged_over_steps(sync):
    with raises_code("option-conflict", sync.partition(":")[0], "--average-weights"):
        replace(AVERAGED, workers=2, sync=sync)
