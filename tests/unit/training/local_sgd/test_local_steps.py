"""Local SGD and DiLoCo: the same steps on any number of processes, and what they are equal to where they are exact."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from equipoise.config import TrainConfig
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.support.process_states import join_states, select_shared
from tests.unit.training.test_loop import max_relative_difference, train_model

DIGITS = TrainConfig(
    workload="digits", batch_size=8, workers=4, target=2.0, max_examples=960, eval_every=480, precision="fp64"
)
ADAMW = {"optimizer": "adamw", "lr": 0.002, "schedule": "cosine"}
WITH_DROPOUT = {"workload": "tests.support.workloads:with_dropout", "grad_accumulation": 2, "clip_norm": 0.5}
WITH_BATCH_NORM = {"workload": "tests.support.workloads:with_batch_norm", "batch_size": 4}
DILOCO = {"sync": "diloco:5"}


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def train_state(config):
    """Train to the end and return all tensors of a checkpoint, and what laps say of the learning."""
    training = Training(config)
    for _ in training.laps():
        pass
    return training.state_dict(), [(lap.step, lap.steps, lap.loss, lap.metric) for lap in training.finished_laps]


def are_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("changes", [{}, {"grad_accumulation": 2, "weight_decay": 0.01}], ids=["plain", "accumulated"])
def test_an_average_after_every_step_is_a_step_along_the_mean_gradient(changes):
    config = replace(DIGITS, **changes)
    weights, laps = train_model(replace(config, sync="local:1"))
    exact, exact_laps = train_model(config)
    assert max_relative_difference(weights, exact) < 1e-15
    assert [lap.loss for lap in laps] == pytest.approx([lap.loss for lap in exact_laps], rel=1e-14)
    farther, _ = train_model(replace(config, sync="local:5"))
    assert max_relative_difference(farther, exact) > 1e-3


@pytest.mark.parametrize("changes", [{}, ADAMW], ids=["sgd", "adamw"])
def test_one_worker_takes_the_steps_of_exact_training_to_the_bit(changes):
    config = replace(DIGITS, workers=1, batch_size=32, **changes)
    assert are_equal(train_model(replace(config, sync="local:5"))[0], train_model(config)[0])
    assert Training(replace(config, sync="local:5")).steps.saved is None  # nobody takes a turn after it


@pytest.mark.parametrize("changes", [{}, ADAMW], ids=["sgd", "adamw"])
def test_outer_step_of_length_one_without_momentum_is_the_average(changes):
    config = replace(DIGITS, **changes)
    outer, _ = train_model(replace(config, sync="diloco:5", outer_lr=1.0, outer_momentum=0.0))
    local, _ = train_model(replace(config, sync="local:5"))
    assert max_relative_difference(outer, local) < 1e-15
    assert max_relative_difference(train_model(replace(config, **DILOCO))[0], local) > 1e-3


def test_outer_step_is_the_nesterov_step_of_torch():
    config = replace(DIGITS, **DILOCO, max_examples=480)
    training, reference = Training(config), Training(config)
    weights = [parameter.detach().clone().requires_grad_() for parameter in training.trainable_parameters]
    optimizer = torch.optim.SGD(weights, lr=config.outer_lr, momentum=config.outer_momentum, nesterov=True)
    reference.steps.outer_step = None
    reference.steps.begin(reference.loader, 0)
    for _ in range(3):
        reference.take_steps(5)
        for weight, average in zip(weights, reference.trainable_parameters, strict=True):
            weight.grad = weight.detach() - average.detach()
        optimizer.step()
        with torch.no_grad():
            for weight, parameter in zip(weights, reference.trainable_parameters, strict=True):
                parameter.copy_(weight)
    for _ in training.laps():
        pass
    for weight, parameter in zip(weights, training.trainable_parameters, strict=True):
        assert torch.allclose(weight, parameter, rtol=1e-14, atol=1e-16)


CASES = {
    "local": {"sync": "local:5"},
    "diloco-adamw": {**DILOCO, **ADAMW},
    "dropout": {"sync": "local:4", **WITH_DROPOUT},
    "batch-norm": {"sync": "local:6", **WITH_BATCH_NORM},
}

ENCODED_CASES = {
    "int8": {"sync": "local:5", "compression": "int8"},
    "int8-adamw": {"sync": "local:5", "compression": "int8", **ADAMW},
    "bf16-diloco": {**DILOCO, "compression": "bf16", **WITH_BATCH_NORM},
}
ALL_CASES = [*CASES.values(), *ENCODED_CASES.values()]


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_processes_takes_the_same_steps(rendezvous_folder, processes):
    short = replace(DIGITS, max_examples=400, eval_every=200)
    configs = [replace(short, workers=workers, **changes) for workers in (processes, 4) for changes in ALL_CASES]
    results = run_with_gloo(processes, rendezvous_folder, train_states, configs)
    for index, config in enumerate(configs):
        alone, laps = train_state(config)
        states = [result[index][0] for result in results]
        assert are_close(join_states(states), alone), config
        for state, (_, other_laps) in zip(states, (result[index] for result in results), strict=True):
            assert are_equal(select_shared(state), select_shared(states[0]))
            assert [lap[:2] for lap in other_laps] == [lap[:2] for lap in laps]
            assert [lap[2] for lap in other_laps] == pytest.approx([lap[2] for lap in laps], rel=1e-13)


def are_close(first, second):
    """Return whether two states agree but for rounding, also where numbers are nothing else."""
    pairs = [(first[name].double(), value.double()) for name, value in second.items()]
    return first.keys() == second.keys() and all(
        float((a - b).norm()) <= 1e-13 * (float(b.norm()) + 0.1) for a, b in pairs
    )


def train_states(configs):
    return [train_state(config) for config in configs]


def train_and_resume_states(configs):
    """Return the states of runs at their end, and of the same runs after an interruption at their first lap."""
    results = []
    for config in configs:
        interrupted = Training(config)
        next(interrupted.laps())
        resumed = Training(config)
        resumed.load_state_dict(load(save(interrupted.state_dict())), interrupted.finished_laps)
        for _ in resumed.laps():
            pass
        results.append((train_state(config)[0], resumed.state_dict()))
    return results


def test_resumed_run_is_bit_equal_to_the_uninterrupted_one(rendezvous_folder):
    short = replace(DIGITS, precision="fp32", max_examples=400, eval_every=200)
    configs = [replace(short, **changes) for changes in CASES.values()]
    lazy = replace(configs[0], optimizer="adafactor", lr=0.01)  # it makes its moments in its first step
    for state, resumed in [
        *train_and_resume_states([*configs, lazy]),
        *run_with_gloo(3, rendezvous_folder, train_and_resume_states, configs)[0],
    ]:
        assert are_equal(state, resumed)


def test_run_goes_on_with_another_number_of_processes(rendezvous_folder):
    config = replace(DIGITS, **DILOCO, **ADAMW)
    uninterrupted, _ = train_state(config)
    state, finished_laps = run_with_gloo(3, rendezvous_folder, train_one_lap, config)[0]
    (resumed, _), _ = run_with_gloo(2, rendezvous_folder, resume_state, config, state, finished_laps)
    assert are_close(resumed, uninterrupted)


@pytest.mark.parametrize("name", ENCODED_CASES)
def test_encoded_changes_lead_near_exact_averages_and_keep_what_they_left_out(name):
    # rounding grows with the steps, as any small change of weights does
    config = replace(DIGITS, **ENCODED_CASES[name], precision="fp32", max_examples=320, eval_every=320)
    encoded, laps = train_state(config)
    exact, exact_laps = train_state(replace(config, compression="none"))
    weights = [name for name in exact if name.startswith("model.") and exact[name].is_floating_point()]
    distance = max(float((encoded[name] - exact[name]).norm() / exact[name].norm()) for name in weights)
    assert 0 < distance < 0.05
    assert [lap[2] for lap in laps] == pytest.approx([lap[2] for lap in exact_laps], rel=0.02)
    errors = {name: value for name, value in encoded.items() if name.startswith("error.")}
    assert errors and all(torch.isfinite(value).all() for value in encoded.values())
    assert len(errors) == config.workers + 1  # that of the encoded sum too
    assert all(value.abs().max() > 0 for value in errors.values())


def train_one_lap(config):
    training = Training(config)
    next(training.laps())
    return save(training.state_dict()), training.finished_laps


def resume_state(config, state, finished_laps):
    training = Training(config)
    training.load_state_dict(load(state), finished_laps)
    for _ in training.laps():
        pass
    return training.state_dict(), training.finished_laps


def test_laps_end_at_averages():
    config = replace(DIGITS, sync="local:8", max_examples=1100, eval_every=100)
    training = Training(config)
    laps = list(training.laps())
    assert [(lap.step, lap.steps) for lap in laps] == [(8, 8), (16, 8), (24, 8), (32, 8), (40, 8)]
    assert [lap.seen for lap in laps] == [256 * count for count in range(1, 6)]
    assert all(lap.metric is not None and lap.draws == 0 and lap.average_interval == 8 for lap in laps)
    assert training.status == "max_examples" and training.examples_seen == 1280


def test_long_intervals_are_not_cut_by_the_longest_lap_but_by_the_run():
    config = replace(DIGITS, workers=2, batch_size=1, sync="local:150", max_examples=520, eval_every=10**6)
    assert [(lap.step, lap.average_interval) for lap in Training(config).laps()] == [(150, 150), (300, 150)]
    short = replace(config, sync="local:40", max_examples=400)
    assert [lap.step for lap in Training(short).laps()] == [80, 160, 200]
    longer_than_run = replace(config, sync="local:1000", max_examples=50)
    assert [(lap.step, lap.average_interval) for lap in Training(longer_than_run).laps()] == [(25, 25)]


def train_laps(config):
    return list(Training(config).laps())


def test_lap_counts_what_is_sent_per_step(rendezvous_folder):
    config = replace(DIGITS, workers=2, sync="local:10", all_reduce="ring")
    size = sum(parameter.nbytes for parameter in Training(config).trainable_parameters)
    lap = run_with_gloo(2, rendezvous_folder, train_laps, config)[0][0]
    cost = all_reduce_cost("ring", 2, 2 * size)  # weights and their momentum
    assert lap.sent_bytes == pytest.approx(cost.max_sent_bytes / 10, abs=1)
    assert lap.rounds == cost.rounds / 10 and lap.all_reduce == ("ring",)
    assert lap.exchange_seconds > 0 and lap.local_norm is None
    assert Training(config).gradient_sync.traffic == (0, 0)  # in one process


def test_statistics_and_moments_are_the_means_of_the_workers():
    config = replace(DIGITS, **WITH_BATCH_NORM, sync="local:6", max_examples=96)
    states = []
    for worker in range(4):
        training = Training(config)
        training.steps.workers = [range(worker, worker + 1)]  # as a process of its own has it
        training.steps.sync.num_workers, training.steps.sync.hosted_sums = 1, []
        training.steps.begin(training.loader, 0)
        training.take_steps(6)
        states.append(training.state_dict())
    averaged, _ = train_state(config)
    for name, value in averaged.items():
        mean = torch.stack([state[name] for state in states]).double().mean(0)
        assert torch.allclose(value.double(), mean, rtol=1e-12, atol=1e-16), name
    assert not torch.equal(states[0]["model.1.running_var"], states[1]["model.1.running_var"])
    assert averaged["model.1.num_batches_tracked"] == 6


def train_by_torch(config, interval):
    """Train as torch's averager of parameters does, with the model, batches and learning rates of `Training`."""
    training = Training(config)
    rank, model = dist.get_rank(), training.model
    batches = training.loader.train_batches(range(rank, rank + 1), 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    averager = PeriodicModelAverager(period=interval, warmup_steps=0)
    for _ in range(config.max_examples // config.global_batch):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        training.workload.loss(model(inputs), targets).backward()
        optimizer.step()
        if averager.step == 0:  # it counts from 0, and would average after the first step
            averager.step += 1
        averager.average_parameters(model.parameters())
    return model.state_dict()


@pytest.mark.slow
def test_steps_without_momentum_are_those_of_the_averager_of_torch(rendezvous_folder):
    config = replace(DIGITS, workers=2, momentum=0.0, warmup=0.0, max_examples=480, lr=0.1)
    theirs = run_with_gloo(2, rendezvous_folder, train_by_torch, config, 5)[0]
    ours, _ = train_model(replace(config, sync="local:5"))
    assert max_relative_difference(ours, theirs) < 1e-14


def train_in_too_many(config):
    with raises_code("option-conflict", "cannot share 2 workers among 3 processes", "--workers 3"):
        Training(config)


def test_more_processes_than_workers_are_refused(rendezvous_folder):
    config = replace(DIGITS, workers=2, grad_accumulation=4, sync="local:5")
    run_with_gloo(3, rendezvous_folder, train_in_too_many, config)


def test_non_finite_loss_of_one_worker_ends_the_run_at_its_step():
    training = Training(replace(DIGITS, lr=1e4, sync="local:20"))
    assert list(training.laps()) == []
    assert training.status == "failed"
    assert 1 <= int(training.reason.rsplit(maxsplit=1)[1]) <= 20


def test_best_weights_and_memory_check_work_with_local_steps():
    training = Training(replace(DIGITS, sync="local:5", keep="best"))
    assert training.fits_in_memory()
    assert list(training.laps())
    training.load_kept_weights()
    assert training.evaluate(training.workload.validation) == max(lap.metric for lap in training.finished_laps)
