"""Asynchronous steps in one process: their updates against a plain loop, replays, resumed runs and limits."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals import parse_arrivals
from equipoise.training.loop import Training
from equipoise.training.store_steps.replay import largest_difference, replay_run
from equipoise.training.store_steps.scheduled_steps import VirtualWorkers
from equipoise.training.store_steps.update import update_lr
from tests.support.errors import raises_code

DIGITS = TrainConfig(
    workload="digits",
    sync="async:3",
    batch_size=8,
    workers=4,
    target=2.0,
    max_examples=480,
    eval_every=160,
    precision="fp64",
)
ADAMW = {"optimizer": "adamw", "lr": 0.002, "schedule": "cosine"}
WITH_DROPOUT = {"workload": "tests.support.workloads:with_dropout", "grad_accumulation": 2, "clip_norm": 0.5}
WITH_BATCH_NORM = {"workload": "tests.support.workloads:with_batch_norm"}
UNEQUAL = (1.0, 1.3, 0.4, 2.9)
CASES = pytest.mark.parametrize(
    "changes", [{}, ADAMW, WITH_DROPOUT, WITH_BATCH_NORM], ids=["sgd", "adamw", "dropout", "batch-norm"]
)


def train(config, seconds=()):
    """Train to the end with workers that take these seconds a ticket."""
    training = Training(config)
    if config.sync_method.kind == "async":
        training.steps.schedule = VirtualWorkers(config, seconds)
    for _ in training.laps():
        pass
    return training


def read_log(training):
    config = training.config
    content = "".join(training.steps.arrival_lines).encode()
    return parse_arrivals(content, "the log", config.workers, config.sync_method.staleness)


@pytest.mark.parametrize("changes", [{}, ADAMW, WITH_DROPOUT], ids=["sgd", "adamw", "dropout-clipped"])
@pytest.mark.parametrize("seconds", [(), UNEQUAL], ids=["equal", "unequal"])
def test_updates_without_staleness_are_the_steps_of_exact_training(changes, seconds):
    config = replace(DIGITS, **changes)
    training, exact = train(replace(config, sync="async:0"), seconds), train(replace(config, sync="step"))
    assert largest_difference(training.model.state_dict(), exact.model.state_dict()) < 1e-14
    for lap, exact_lap in zip(training.finished_laps, exact.finished_laps, strict=True):
        assert (lap.step, lap.lr, lap.metric, lap.max_staleness) == (exact_lap.step, exact_lap.lr, exact_lap.metric, 0)
        assert lap.loss == pytest.approx(exact_lap.loss, rel=1e-13)


def test_updates_are_those_of_a_loop_that_keeps_the_weights_of_all_versions():
    training = train(replace(DIGITS, lr=0.05, schedule="cosine"), UNEQUAL)
    config, reference = training.config, Training(replace(DIGITS, sync="step", lr=0.05, schedule="cosine"))
    model, loader = reference.model, reference.loader
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    momenta = [torch.zeros_like(weight) for weight in weights]
    for lap in read_log(training):
        versions = [[weight.clone() for weight in weights]]
        for pushes in lap.updates:
            sums = [torch.zeros_like(weight) for weight in weights]
            for push in pushes:
                with torch.no_grad():
                    for parameter, weight in zip(model.parameters(), versions[push.version], strict=True):
                        parameter.copy_(weight)
                inputs, targets = loader.load_micro_batch(push.ticket // 4, push.ticket % 4)
                loss = reference.workload.loss(model(inputs), targets)
                for total, gradient in zip(sums, torch.autograd.grad(loss, [*model.parameters()]), strict=True):
                    total += gradient
            rates = [reference._lr_at(push.ticket // 4 + 1) for push in pushes]
            for weight, momentum, total in zip(weights, momenta, sums, strict=True):
                momentum.mul_(config.momentum).add_(total / len(pushes))
                weight -= sum(rates) / len(rates) * len(pushes) / 4 * momentum
            versions.append([weight.clone() for weight in weights])
    assert any(len(pushes) > 1 for lap in read_log(training) for pushes in lap.updates)
    assert any(len(pushes) == 1 for lap in read_log(training) for pushes in lap.updates)
    expected = dict(zip(dict(model.named_parameters()), weights, strict=True))
    assert largest_difference(training.model.state_dict(), expected) < 1e-13


@CASES
def test_replay_of_the_log_gives_the_weights_to_the_last_bit(changes):
    training = train(replace(DIGITS, **changes), UNEQUAL)
    weights = replay_run(training.config, read_log(training))
    assert largest_difference(weights, training.model.state_dict()) == 0.0
    others = train(replace(DIGITS, **changes))  # with other arrivals
    assert largest_difference(weights, others.model.state_dict()) > 1e-3


def test_replay_refuses_a_log_without_one_of_the_laps():
    training = train(DIGITS)
    laps = read_log(training)
    with raises_code("run-damaged", "has no lap of steps 6 to 10"):
        replay_run(training.config, [laps[0], laps[2]])


@CASES
def test_resumed_run_ends_with_the_same_bits(changes):
    config = replace(DIGITS, **changes)
    uninterrupted = train(config)
    interrupted = Training(config)
    next(interrupted.laps())
    resumed = Training(config)
    resumed.load_state_dict(load(save(interrupted.state_dict())), interrupted.finished_laps)
    for _ in resumed.laps():
        pass
    state, expected = resumed.state_dict(), uninterrupted.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    assert interrupted.steps.arrival_lines + resumed.steps.arrival_lines == uninterrupted.steps.arrival_lines


def test_laps_say_how_stale_gradients_were():
    for sync, largest in (("async:0", 0), ("async:1", 1), ("async:9", 3)):
        laps = train(replace(DIGITS, sync=sync)).finished_laps
        assert [lap.max_staleness for lap in laps] == [largest] * 3
        assert all(0 < lap.mean_staleness <= largest or largest == 0 == lap.mean_staleness for lap in laps)
        assert all(lap.draws == 0 for lap in laps)
    assert all(lap.mean_staleness is None for lap in train(replace(DIGITS, sync="step")).finished_laps)


def test_fast_workers_compute_more_tickets():
    laps = read_log(train(DIGITS, (1.0, 1.0, 1.0, 4.0)))
    tickets = [sum(push.worker == worker for lap in laps for p in lap.updates for push in p) for worker in range(4)]
    assert sum(tickets) == 60
    assert tickets[3] < min(tickets[:3]) / 1.5


def test_running_statistics_are_those_of_the_workers_averaged():
    config = replace(DIGITS, workers=2, max_examples=16, eval_every=16, lr=1e-9, **WITH_BATCH_NORM)
    training = train(config)
    both = []
    for worker in range(2):
        alone = Training(replace(config, sync="step"))
        alone.model(alone.loader.load_micro_batch(0, worker)[0])
        both.append(alone.model[1].running_mean)
    assert torch.allclose(training.model[1].running_mean, (both[0] + both[1]) / 2, rtol=1e-12)
    assert int(training.model[1].num_batches_tracked) == 1


def test_a_run_that_diverges_fails_with_a_reason():
    training = train(replace(DIGITS, lr=1e6))
    assert training.status == "failed"
    assert "the loss was" in training.reason


@given(st.integers(1, 7), st.lists(st.integers(0, 40), min_size=1, max_size=9), st.floats(1e-6, 10.0))
def test_rate_of_an_update_is_its_share_of_a_step(tickets_per_step, tickets, lr):
    rate = update_lr(tickets, tickets_per_step, lambda step: lr / step)
    expected = sum(lr / (ticket // tickets_per_step + 1) for ticket in tickets) / tickets_per_step
    assert rate == pytest.approx(expected, rel=1e-12)
    assert update_lr(range(tickets_per_step), tickets_per_step, lambda step: lr / step) == lr
