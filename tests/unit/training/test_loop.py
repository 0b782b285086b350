"""The promise of the loop: the run of n workers is the run of one worker."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap
from equipoise.training.loop import Training, laps
from equipoise.training.optimizers import FusedOptimizer
from equipoise.training.torch_state import flush_denormals
from equipoise.workloads import load_workload
from tests.support.gloo import run_with_gloo

DIGITS = TrainConfig(workload="digits", batch_size=32, target=2.0)  # an accuracy that no run reaches


def weights(trial):
    """The model's state after the trial, and its laps."""
    training = Training(trial)
    for _ in training.laps():
        pass
    return training.model.state_dict(), training.finished_laps


def first_gradients(trial):
    """Gradients as the optimizer meets them at the first step: weights that moved by them alone."""
    trial = replace(trial, max_examples=trial.global_batch, warmup=0, lr=1.0, momentum=0)
    before = {name: value.clone() for name, value in Training(trial).model.state_dict().items()}
    after, _ = weights(trial)
    return {name: before[name] - after[name] for name in before}


def distance(one, other):
    """The largest relative difference between two states, tensor by tensor."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).norm() / other[name].norm()) for name in one)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def test_two_workers_accumulation_and_one_large_batch_agree_after_100_steps(place):
    trial = replace(DIGITS, precision="fp64", max_examples=6400)
    (two, done), again = run_with_gloo(2, place, weights, replace(trial, workers=2))
    accumulated, _ = weights(replace(trial, grad_accumulation=2))
    large, _ = weights(replace(trial, batch_size=64))
    assert done[-1].step == 100
    assert done[-1].workers == 2
    assert distance(two, again[0]) == 0
    assert distance(two, accumulated) < 1e-10
    assert distance(two, large) < 1e-10


def test_two_workers_and_one_meet_the_same_pictures_under_every_variation(place):
    trial = TrainConfig(
        workload="tests.support.workloads:with_all_variations", batch_size=32, lr=0.01, target=2.0, max_examples=1920
    )
    trial = replace(trial, precision="fp64", eval_every=1920)
    (two, _), _ = run_with_gloo(2, place, weights, replace(trial, workers=2))
    accumulated, _ = weights(replace(trial, grad_accumulation=2))
    large, _ = weights(replace(trial, batch_size=64))
    plain, _ = weights(replace(trial, batch_size=64, augment=False))
    assert distance(two, accumulated) < 1e-10
    assert distance(two, large) < 1e-10
    assert distance(two, plain) > 0.1


@pytest.mark.parametrize(
    "changes", [{"channels_last": True}, {"optimizer": "adamw", "lr": 0.002}], ids=["layout", "adamw"]
)
def test_layout_and_optimizer_make_no_difference_between_workers(place, changes):
    trial = replace(
        DIGITS, precision="fp64", max_examples=1280, workload="tests.support.workloads:with_convolutions", **changes
    )
    two, _ = run_with_gloo(2, place, weights, replace(trial, workers=2))[0]
    large, _ = weights(replace(trial, batch_size=64))
    assert distance(two, large) < 1e-10


def test_workers_with_unequal_shares_agree_too(place):
    trial = replace(DIGITS, precision="fp64", max_examples=2560, batch_size=16, workers=4)
    three, _ = run_with_gloo(3, place, weights, trial)[0]
    alone, _ = weights(trial)
    assert distance(three, alone) < 1e-10


def test_dropout_belongs_to_the_place_not_to_the_worker(place):
    trial = replace(DIGITS, workload="tests.support.workloads:with_dropout", precision="fp64", max_examples=6400)
    two, _ = run_with_gloo(2, place, weights, replace(trial, workers=2))[0]
    accumulated, _ = weights(replace(trial, grad_accumulation=2))
    other, _ = weights(replace(trial, grad_accumulation=2, seed=1))
    assert distance(two, accumulated) < 1e-10
    assert distance(two, other) > 0.1


def test_first_gradients_agree_in_single_precision(place):
    two = run_with_gloo(2, place, first_gradients, replace(DIGITS, workers=2))[0]
    accumulated, large = (
        first_gradients(replace(DIGITS, grad_accumulation=2)),
        first_gradients(replace(DIGITS, batch_size=64)),
    )
    assert distance(two, accumulated) < 1e-5
    assert distance(two, large) < 1e-5


def test_batch_norm_keeps_one_model_on_all_workers(place):
    trial = replace(DIGITS, workload="tests.support.workloads:with_batch_norm", workers=2, max_examples=1280)
    (one, _), (other, _) = run_with_gloo(2, place, weights, trial)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_parameter_that_takes_no_part_stays_as_it_was(place):
    trial = replace(DIGITS, workload="tests.support.workloads:with_unused", workers=2, max_examples=640, weight_decay=0)
    start = Training(trial).model.state_dict()
    trained, _ = run_with_gloo(2, place, weights, trial)[0]
    assert torch.equal(trained["idle.weight"], start["idle.weight"])
    assert torch.equal(trained["frozen.weight"], start["frozen.weight"])
    assert not torch.equal(trained["body.weight"], start["body.weight"])


def resumed(trial, after):
    """The state after a trial that is cut off after some laps and goes on in a new process' worth of objects."""
    first = Training(trial)
    for _, _ in zip(range(after), first.laps(), strict=False):
        pass
    kept = load(save(first.state_dict()))
    second = Training(trial)
    second.load_state_dict(kept, first.finished_laps)
    for _ in second.laps():
        pass
    return second.model.state_dict(), second.finished_laps


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
def test_a_resumed_run_is_the_undisturbed_one_to_the_bit(changes):
    trial = replace(DIGITS, max_examples=2000, **changes)
    straight, laps_straight = weights(trial)
    cut, laps_cut = resumed(trial, after=3)
    assert all(torch.equal(straight[name], cut[name]) for name in straight)
    assert [lap.loss for lap in laps_straight] == [lap.loss for lap in laps_cut]


def test_a_resumed_run_of_three_workers_is_the_undisturbed_one_to_the_bit(place):
    trial = replace(DIGITS, batch_size=16, workers=3, max_examples=1500)
    straight, _ = run_with_gloo(3, place, weights, trial)[0]
    cut, _ = run_with_gloo(3, place, resumed, trial, 2)[0]
    assert all(torch.equal(straight[name], cut[name]) for name in straight)


def test_laps_tell_what_was_done():
    trial = TrainConfig(workload="digits", batch_size=50, max_examples=1000, eval_every=300, lr=0.1, warmup=0.5)
    done = list(laps(trial))
    assert [lap.seen for lap in done] == [300, 600, 900, 1000]
    assert [lap.examples for lap in done] == [300, 300, 300, 100]
    assert sum(lap.steps for lap in done) == done[-1].step == 20
    assert all(0 <= lap.metric <= 1 and lap.seconds > 0 for lap in done)
    assert all(lap.data_seconds + lap.compute_seconds + lap.exchange_seconds <= lap.seconds * 1.001 for lap in done)
    assert done[0].lr == pytest.approx(0.1 * 300 / 539)
    assert done[-1].lr == pytest.approx(0.1)


def test_a_long_way_between_evaluations_still_yields_laps():
    done = list(laps(TrainConfig(workload="digits", batch_size=4, max_examples=1000, eval_every=1000)))
    assert [(lap.seen, lap.metric is None) for lap in done] == [(400, True), (800, True), (1000, False)]


def test_training_stops_where_the_target_is_crossed():
    training = Training(replace(DIGITS, target=0.8, lr=0.1))
    done = list(training.laps())
    assert training.status == "reached_target"
    assert done[-1].metric >= 0.8 > max(lap.metric for lap in done[:-1])
    assert done[-2].seen < training.examples_to_target <= done[-1].seen
    assert training.evaluate(training.workload.test) > 0.7


def test_a_cap_below_the_first_evaluation_is_kept():
    training = Training(replace(DIGITS, max_examples=10))
    assert [lap.seen for lap in training.laps()] == [32]
    assert training.status == "max_examples"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_not_finite_ends_the_trial_and_names_the_step(place, workers):
    trial = replace(DIGITS, lr=1e4, workers=workers)
    ended, done = run_with_gloo(workers, place, ending, trial)[0]
    assert ended.startswith("the loss was ")
    step = int(ended.rsplit(maxsplit=1)[1])
    before = done[-1].step if done else 0
    assert before < step <= before + 100


def test_a_metric_that_is_none_ends_the_run_and_leaves_no_lap():
    made = load_workload(DIGITS)
    odd = replace(made, metric=lambda logits, labels: made.metric(logits, labels) / (len(labels) == 2))
    training = Training(replace(DIGITS, eval_every=640), odd)
    done = list(training.laps())
    assert training.status == "failed"
    assert training.reason.startswith("the metric was ") and training.reason.endswith("split at step 20")
    assert all(lap.metric is None for lap in done) and done == training.finished_laps


def ending(trial):
    training = Training(trial)
    done = list(training.laps())
    return training.reason, done


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp64"])
def test_every_precision_learns(precision):
    done = list(laps(replace(DIGITS, precision=precision, max_examples=8000)))
    assert done[-1].metric > 0.6
    assert done[-1].loss < done[0].loss / 2


def agreed(wish):
    import torch.distributed as dist

    return Training(replace(DIGITS, workers=2)).all_reduce_max(wish if dist.get_rank() else 0)


def test_the_largest_wish_of_any_worker_holds_for_all(place):
    assert run_with_gloo(2, place, agreed, 2) == [2, 2]
    assert run_with_gloo(2, place, agreed, 0) == [0, 0]


def test_laps_are_plain_data():
    assert all(isinstance(lap, Lap) for lap in laps(replace(DIGITS, max_examples=64)))


def momentum_of_a_dead_unit():
    parameter = torch.nn.Parameter(torch.ones(16))
    optimizer = FusedOptimizer(DIGITS, {"weight": parameter})
    parameter.grad = torch.ones(16)
    for _ in range(1000):
        optimizer.step(0.01)
        parameter.grad.zero_()
    return optimizer.state_dict()["weight.momentum"]


def test_momentum_does_not_stay_among_the_smallest_numbers():
    assert (momentum_of_a_dead_unit() > 0).all()  # smaller than any number of full precision, and slow
    with flush_denormals():
        assert (momentum_of_a_dead_unit() == 0).all()


def test_small_numbers_are_as_before_once_a_lap_is_over():
    tiny = torch.tensor(torch.finfo(torch.float32).tiny)
    next(laps(replace(DIGITS, max_examples=64)))
    assert tiny / 2 > 0
    torch.set_flush_denormal(True)
    try:
        next(laps(replace(DIGITS, max_examples=64)))
        assert tiny / 2 == 0
    finally:
        torch.set_flush_denormal(False)
