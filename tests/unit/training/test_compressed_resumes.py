"""Runs with compression that were interrupted take the steps of undisturbed ones, on any number of processes."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo
from tests.unit.training.test_loop import max_relative_difference, train_model

DIGITS = TrainConfig(workload="digits", workers=4, batch_size=4, target=2.0, max_examples=320, eval_every=160)
LINEAR = replace(DIGITS, compression="powersgd:2", precision="fp64")  # in fp32 rounding would soon be all of it
LOCAL = replace(DIGITS, sync="local:5", compression="int8", optimizer="adamw", lr=0.002)
ENCODED = [replace(DIGITS, compression=name, grad_accumulation=2) for name in ("bf16", "int8", "topk:0.05")]
BY_WORKER = [*ENCODED, LOCAL, replace(LOCAL, sync="diloco:5", compression="bf16", optimizer="sgd", lr=0.1)]
CONFIGS = [*BY_WORKER, LINEAR, replace(LINEAR, error_feedback=False)]


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def interrupt(configs):
    """Return the state and the laps of each run after its first lap, in a form that another process can read."""
    return [take_first_lap(Training(config)) for config in configs]


def take_first_lap(training):
    next(training.laps())
    return save(training.state_dict()), training.finished_laps


def resume(configs, interrupted):
    """Return the weights of runs that go on from the states that all processes had."""
    results = []
    for config, (states, finished_laps) in zip(configs, interrupted, strict=True):
        training = Training(config)
        tensors = {name: value for state in states for name, value in load(state).items()}
        training.load_state_dict(tensors, finished_laps)
        assert not training.status
        for _ in training.laps():
            pass
        results.append(training.model.state_dict())
    return results


def train_and_resume(configs):
    """Return the weights of undisturbed runs, and of those that go on from what each process itself had kept."""
    interrupted = [([state], laps) for state, laps in interrupt(configs)]
    return [train_model(config)[0] for config in configs], resume(configs, interrupted)


def are_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.sync}-{config.compression}")
def test_resumed_run_is_bit_equal_in_one_process(config):
    (undisturbed,), (resumed,) = train_and_resume([config])
    assert are_equal(resumed, undisturbed)


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_resumed_run_is_bit_equal_on_as_many_processes(rendezvous_folder, processes):
    for undisturbed, resumed in run_with_gloo(processes, rendezvous_folder, train_and_resume, CONFIGS):
        for config, first, second in zip(CONFIGS, undisturbed, resumed, strict=True):
            assert are_equal(first, second), config


@pytest.mark.parametrize("processes", [(1, 3), pytest.param((3, 2), marks=pytest.mark.slow)])
def test_resumed_run_is_bit_equal_on_another_number_of_processes(rendezvous_folder, processes):
    configs, (before, after) = [*BY_WORKER, LINEAR], processes
    parts = run_with_gloo(before, rendezvous_folder, interrupt, configs)
    interrupted = [([state for state, _ in run], run[0][1]) for run in zip(*parts, strict=True)]
    results = run_with_gloo(after, rendezvous_folder, resume, configs, interrupted)
    undisturbed = [train_model(config)[0] for config in configs]
    for result in results:
        for config, resumed, first, expected in zip(configs, result, results[0], undisturbed, strict=True):
            assert are_equal(resumed, first)
            if config is LINEAR:
                assert max_relative_difference(resumed, expected) < 1e-12
            elif config.sync == "step":
                assert are_equal(resumed, expected), config
            else:  # sums of what is not encoded are rounded as the processes are
                assert max_relative_difference(resumed, expected) < 1e-6


@pytest.mark.parametrize("config", [*BY_WORKER, LINEAR], ids=lambda config: f"{config.sync}-{config.compression}")
def test_run_depends_on_what_was_left_out(config):
    state, finished_laps = take_first_lap(Training(config))
    tensors = {name: value for name, value in load(state).items() if not name.startswith("error.")}
    assert len(tensors) < len(load(state))
    (without_errors,) = resume([config], [([save(tensors)], finished_laps)])
    assert not are_equal(without_errors, train_model(config)[0])


@pytest.mark.parametrize(
    ("config", "name", "other"),
    [(ENCODED[1], "error.worker.3", "error.worker.4"), (LINEAR, "process-0-of-1", "process-0-of-2")],
    ids=["int8", "powersgd"],
)
def test_errors_of_some_processes_are_refused(config, name, other):
    state, finished_laps = take_first_lap(Training(config))
    tensors = {key.replace(name, other): value for key, value in load(state).items()}
    with raises_code("run-damaged", name):
        Training(config).load_state_dict(tensors, finished_laps)
