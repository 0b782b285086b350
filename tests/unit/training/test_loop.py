"""Tests of the training loop, above all that a run of n workers equals the run of one worker."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.runs.record import Lap
from equipoise.training.loop import Training, laps
from equipoise.training.torch_state import flush_denormals
from equipoise.workloads import load_workload
from tests.support.gloo import run_with_gloo

DIGITS = TrainConfig(workload="digits", batch_size=32, target=2.0)  # an accuracy that no run reaches


def train_model(config):
    """Train to the end and return the model's state and the laps."""
    training = Training(config)
    for _ in training.laps():
        pass
    return training.model.state_dict(), training.finished_laps


def compute_first_gradients(config):
    """Return the gradients of the first step, as the change of weights trained with learning rate 1 and no momentum."""
    config = replace(config, max_examples=config.global_batch, warmup=0, lr=1.0, momentum=0)
    before = {name: value.clone() for name, value in Training(config).model.state_dict().items()}
    after, _ = train_model(config)
    return {name: before[name] - after[name] for name in before}


def max_relative_difference(first, second):
    """Return the largest relative difference between two states over their tensors."""
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).norm() / second[name].norm()) for name in first)


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def test_two_workers_accumulation_and_one_large_batch_agree_after_100_steps(rendezvous_folder):
    config = replace(DIGITS, precision="fp64", max_examples=6400)
    (first_worker, finished_laps), second_worker = run_with_gloo(
        2, rendezvous_folder, train_model, replace(config, workers=2)
    )
    accumulated, _ = train_model(replace(config, grad_accumulation=2))
    large, _ = train_model(replace(config, batch_size=64))
    assert finished_laps[-1].step == 100
    assert finished_laps[-1].workers == 2
    assert max_relative_difference(first_worker, second_worker[0]) == 0
    assert max_relative_difference(first_worker, accumulated) < 1e-10
    assert max_relative_difference(first_worker, large) < 1e-10


def test_augmented_images_do_not_depend_on_the_number_of_workers(rendezvous_folder):
    config = TrainConfig(
        workload="tests.support.workloads:with_all_variations", batch_size=32, lr=0.01, target=2.0, max_examples=1920
    )
    config = replace(config, precision="fp64", eval_every=1920)
    (two_workers, _), _ = run_with_gloo(2, rendezvous_folder, train_model, replace(config, workers=2))
    accumulated, _ = train_model(replace(config, grad_accumulation=2))
    large, _ = train_model(replace(config, batch_size=64))
    not_augmented, _ = train_model(replace(config, batch_size=64, augment=False))
    assert max_relative_difference(two_workers, accumulated) < 1e-10
    assert max_relative_difference(two_workers, large) < 1e-10
    assert max_relative_difference(two_workers, not_augmented) > 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"channels_last": True},
        {"optimizer": "adamw", "lr": 0.002},
        {"optimizer": "lamb", "lr": 0.01, "channels_last": True},
    ],
    ids=["channels-last", "adamw", "lamb"],
)
def test_two_workers_agree_with_one_in_channels_last_and_with_adaptive_steps(rendezvous_folder, changes):
    config = replace(
        DIGITS, precision="fp64", max_examples=1280, workload="tests.support.workloads:with_convolutions", **changes
    )
    two_workers, _ = run_with_gloo(2, rendezvous_folder, train_model, replace(config, workers=2))[0]
    large, _ = train_model(replace(config, batch_size=64))
    assert max_relative_difference(two_workers, large) < 1e-10


def test_workers_with_unequal_numbers_of_micro_batches_agree_with_one(rendezvous_folder):
    config = replace(DIGITS, precision="fp64", max_examples=2560, batch_size=16, workers=4)
    three_workers, _ = run_with_gloo(3, rendezvous_folder, train_model, config)[0]
    one_worker, _ = train_model(config)
    assert max_relative_difference(three_workers, one_worker) < 1e-10


def test_dropout_depends_on_the_micro_batch_and_seed_not_the_worker(rendezvous_folder):
    config = replace(DIGITS, workload="tests.support.workloads:with_dropout", precision="fp64", max_examples=6400)
    two_workers, _ = run_with_gloo(2, rendezvous_folder, train_model, replace(config, workers=2))[0]
    accumulated, _ = train_model(replace(config, grad_accumulation=2))
    other_seed, _ = train_model(replace(config, grad_accumulation=2, seed=1))
    assert max_relative_difference(two_workers, accumulated) < 1e-10
    assert max_relative_difference(two_workers, other_seed) > 0.1


def test_first_gradients_agree_in_single_precision(rendezvous_folder):
    two_workers = run_with_gloo(2, rendezvous_folder, compute_first_gradients, replace(DIGITS, workers=2))[0]
    accumulated = compute_first_gradients(replace(DIGITS, grad_accumulation=2))
    large = compute_first_gradients(replace(DIGITS, batch_size=64))
    assert max_relative_difference(two_workers, accumulated) < 1e-5
    assert max_relative_difference(two_workers, large) < 1e-5


def test_batch_norm_models_are_equal_on_all_workers(rendezvous_folder):
    config = replace(DIGITS, workload="tests.support.workloads:with_batch_norm", workers=2, max_examples=1280)
    (first_worker, _), (second_worker, _) = run_with_gloo(2, rendezvous_folder, train_model, config)
    assert all(torch.equal(first_worker[name], second_worker[name]) for name in first_worker)


def test_unused_and_frozen_parameters_do_not_change(rendezvous_folder):
    config = replace(
        DIGITS, workload="tests.support.workloads:with_unused", workers=2, max_examples=640, weight_decay=0
    )
    initial = Training(config).model.state_dict()
    trained, _ = run_with_gloo(2, rendezvous_folder, train_model, config)[0]
    assert torch.equal(trained["idle.weight"], initial["idle.weight"])
    assert torch.equal(trained["frozen.weight"], initial["frozen.weight"])
    assert not torch.equal(trained["body.weight"], initial["body.weight"])


def train_and_resume(config, laps_before_stop):
    """Stop a run after some laps, resume it with new objects from its saved state, and return its state and laps."""
    interrupted = Training(config)
    for _, _ in zip(range(laps_before_stop), interrupted.laps(), strict=False):
        pass
    saved_state = load(save(interrupted.state_dict()))
    resumed = Training(config)
    resumed.load_state_dict(saved_state, interrupted.finished_laps)
    for _ in resumed.laps():
        pass
    return resumed.model.state_dict(), resumed.finished_laps


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw", "lr": 0.002, "schedule": "cosine"},
        {"workload": "tests.support.workloads:with_dropout", "grad_accumulation": 2, "schedule": "one-cycle"},
        {"workload": "tests.support.workloads:with_batch_norm", "channels_last": True},
    ],
    ids=["sgd", "adamw", "dropout", "batch-norm"],
)
def test_resumed_run_is_bit_equal_to_the_uninterrupted_one(changes):
    config = replace(DIGITS, max_examples=2000, **changes)
    uninterrupted, uninterrupted_laps = train_model(config)
    resumed, resumed_laps = train_and_resume(config, laps_before_stop=3)
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)
    assert [lap.loss for lap in uninterrupted_laps] == [lap.loss for lap in resumed_laps]


def test_resumed_run_of_three_workers_is_bit_equal_to_the_uninterrupted_one(rendezvous_folder):
    config = replace(DIGITS, batch_size=16, workers=3, max_examples=1500)
    uninterrupted, _ = run_with_gloo(3, rendezvous_folder, train_model, config)[0]
    resumed, _ = run_with_gloo(3, rendezvous_folder, train_and_resume, config, 2)[0]
    assert all(torch.equal(uninterrupted[name], resumed[name]) for name in uninterrupted)


def test_laps_record_examples_steps_seconds_and_learning_rate():
    config = TrainConfig(workload="digits", batch_size=50, max_examples=1000, eval_every=300, lr=0.1, warmup=0.5)
    finished_laps = list(laps(config))
    assert [lap.seen for lap in finished_laps] == [300, 600, 900, 1000]
    assert [lap.examples for lap in finished_laps] == [300, 300, 300, 100]
    assert sum(lap.steps for lap in finished_laps) == finished_laps[-1].step == 20
    assert all(0 <= lap.metric <= 1 and lap.seconds > 0 for lap in finished_laps)
    assert all(
        lap.data_seconds + lap.compute_seconds + lap.exchange_seconds <= lap.seconds * 1.001 for lap in finished_laps
    )
    assert finished_laps[0].lr == pytest.approx(0.1 * 300 / 539)
    assert finished_laps[-1].lr == pytest.approx(0.1)


def test_long_evaluation_interval_still_yields_laps():
    finished_laps = list(laps(TrainConfig(workload="digits", batch_size=4, max_examples=1000, eval_every=1000)))
    assert [(lap.seen, lap.metric is None) for lap in finished_laps] == [(400, True), (800, True), (1000, False)]


def test_training_stops_at_the_first_lap_above_the_target():
    training = Training(replace(DIGITS, target=0.8, lr=0.1))
    finished_laps = list(training.laps())
    assert training.status == "reached_target"
    assert finished_laps[-1].metric >= 0.8 > max(lap.metric for lap in finished_laps[:-1])
    assert finished_laps[-2].seen < training.examples_to_target <= finished_laps[-1].seen
    assert training.evaluate(training.workload.test) > 0.7


def test_max_examples_below_the_first_evaluation_ends_the_run():
    training = Training(replace(DIGITS, max_examples=10))
    assert [lap.seen for lap in training.laps()] == [32]
    assert training.status == "max_examples"


@pytest.mark.parametrize("workers", [1, 2])
def test_non_finite_loss_ends_the_run_and_names_the_step(rendezvous_folder, workers):
    config = replace(DIGITS, lr=1e4, workers=workers)
    reason, finished_laps = run_with_gloo(workers, rendezvous_folder, train_until_end, config)[0]
    assert reason.startswith("the loss was ")
    step = int(reason.rsplit(maxsplit=1)[1])
    last_finished_step = finished_laps[-1].step if finished_laps else 0
    assert last_finished_step < step <= last_finished_step + 100


def test_non_finite_metric_ends_the_run_without_an_evaluated_lap():
    workload = load_workload(DIGITS)
    broken = replace(workload, metric=lambda logits, labels: workload.metric(logits, labels) / (len(labels) == 2))
    training = Training(replace(DIGITS, eval_every=640), broken)
    finished_laps = list(training.laps())
    assert training.status == "failed"
    assert training.reason.startswith("the metric was ") and training.reason.endswith("split at step 20")
    assert all(lap.metric is None for lap in finished_laps) and finished_laps == training.finished_laps


def train_until_end(config):
    training = Training(config)
    finished_laps = list(training.laps())
    return training.reason, finished_laps


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp64"])
def test_training_learns_in_every_precision(precision):
    finished_laps = list(laps(replace(DIGITS, precision=precision, max_examples=8000)))
    assert finished_laps[-1].metric > 0.6
    assert finished_laps[-1].loss < finished_laps[0].loss / 2


def agree_on_max(value):
    import torch.distributed as dist

    return Training(replace(DIGITS, workers=2)).all_reduce_max(value if dist.get_rank() else 0)


def test_all_workers_get_the_largest_value_of_any(rendezvous_folder):
    assert run_with_gloo(2, rendezvous_folder, agree_on_max, 2) == [2, 2]
    assert run_with_gloo(2, rendezvous_folder, agree_on_max, 0) == [0, 0]


def test_laps_are_plain_data():
    assert all(isinstance(lap, Lap) for lap in laps(replace(DIGITS, max_examples=64)))


def decay_momentum():
    parameter = torch.nn.Parameter(torch.ones(16))
    optimizer = RunOptimizer(DIGITS.with_defaults(), {"weight": parameter})
    parameter.grad = torch.ones(16)
    for _ in range(1000):
        optimizer.step(0.01)
        parameter.grad.zero_()
    return optimizer.state_dict()["weight.momentum"]


def test_flush_denormals_lets_decaying_momentum_reach_zero():
    assert (decay_momentum() > 0).all()  # stuck at denormal numbers, which are slow
    with flush_denormals():
        assert (decay_momentum() == 0).all()


def test_denormal_setting_is_restored_after_a_lap():
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    next(laps(replace(DIGITS, max_examples=64)))
    assert tiny / 2 > 0
    torch.set_flush_denormal(True)
    try:
        next(laps(replace(DIGITS, max_examples=64)))
        assert tiny / 2 == 0
    finally:
        torch.set_flush_denormal(False)
