"""Options of a sweep that a function call gives, and those that it must not."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.ray_tune.sweep import require_picklable
from jobs.ray_tune.sweep_options import build_sweep_options
from tests.support.errors import raises_code


def build_options(**options):
    return build_sweep_options("digits", "x", [1, 2], options)


def test_options_of_the_sweep_and_of_training_are_told_apart_by_their_names():
    options = build_options(batch_size="8:64", target=[2.0, 2.4], seeds=3, optimizer="adamw", seed=7, data=Path("d"))
    assert (options.batch_size, options.target, options.seeds, options.workers) == ("8:64", (2.0, 2.4), 3, (1, 2))
    assert (options.config.workload, options.config.optimizer, options.config.seed) == ("digits", "adamw", 7)
    assert options.out == Path("x") and options.config.target is None


@pytest.mark.parametrize("target", [0.9, [0.9], (0.9,)])
def test_single_target_may_be_a_number(target):
    assert build_options(target=target).target == (0.9,)
    assert build_options(target=target).base_config().target == 0.9


def test_no_target_is_that_of_the_workload():
    assert build_options().target == build_options(target=None).target == ()
    assert build_options().base_config().target is None


def test_trials_take_recipes_that_keep_their_batch_and_rate():
    recipes = {"optimizer": "lamb", "label_smoothing": 0.1, "mixup": 0.2, "average_weights": 0.9}
    base = build_options(**recipes).base_config()
    assert {name: getattr(base, name) for name in recipes} == recipes


@pytest.mark.parametrize(
    "name",
    ["bacth_size", "keep", "command", "workload", "config", "scaling_rule", "base_batch", "grow_batch"],
)
def test_other_options_are_refused_by_name(name):
    with raises_code("option-unknown", name, "batch_size"):
        build_options(**{name: 1})


def test_memory_is_an_amount_and_not_of_a_command():
    assert build_options(memory="1.5GB").memory_bytes == 1.5e9 and build_options().memory_bytes is None
    with raises_code("option-format", "--memory must be an amount"):
        build_options(memory="plenty").validate()
    options = build_options(memory="1GB", exchanges="none")
    config = replace(options.config, workload=None, command="train --batch {batch_size} --lr {lr}", lr=0.1)
    with raises_code("option-conflict", "--memory with a --command"):
        replace(options, config=config).validate()


def test_all_reduce_that_a_number_of_workers_cannot_run_is_refused():
    build_sweep_options("digits", "x", [1, 2, 4], {"all_reduce": "doubling"}).validate()
    with raises_code("all-reduce-unusable", "over 3 workers by doubling"):
        build_sweep_options("digits", "x", [1, 2, 3], {"all_reduce": "doubling"}).validate()


@pytest.mark.parametrize("targets", [[float("nan")], [0.9, float("inf")]])
def test_target_that_is_no_finite_number_is_refused(targets):
    with raises_code("option-range", "target"):
        build_options(target=targets).validate()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("target", "0.9"),
        ("target", ["a"]),
        ("target", [[0.1, 0.2]]),
        ("target", [True]),
        ("target", 1j),
        ("batch_size", 32),
        ("lr", (0.1, 0.2)),
        ("budget_seconds", "60"),
        ("seeds", 2.5),
        ("exhaustive", "yes"),
        ("seed", "0"),
        ("max_examples", 10.5),
        ("image_size", "64"),
        ("data", None),
        ("model", 3),
        ("compile", "no"),
    ],
)
def test_option_of_another_type_is_refused(name, value):
    with raises_code("option-format", name):
        build_options(**{name: value})


@pytest.mark.parametrize("workers", [None, "12", [1.5], ["1"], [True]])
def test_workers_are_whole_numbers(workers):
    with raises_code("option-format", "workers"):
        build_sweep_options("digits", "x", workers, {})


@pytest.mark.parametrize("out", [None, 3])
def test_out_is_a_path(out):
    with raises_code("option-format", "out"):
        build_sweep_options("digits", out, [1], {})


@pytest.mark.parametrize(
    ("name", "value"), [("trials", "bogus"), ("track", "bogus"), ("optimizer", "lion"), ("precision", 16)]
)
def test_option_with_choices_names_them(name, value):
    with raises_code("option-choice", name, value):
        build_options(**{name: value})


def test_values_of_numpy_and_single_numbers_are_taken():
    options = build_sweep_options(
        "digits",
        Path("x"),
        np.array([1, 2]),
        {"target": np.float32(0.5), "seeds": np.int64(3), "lr": 0.1, "model": None},
    )
    assert (options.workers, options.target, options.seeds, options.lr) == ((1, 2), (0.5,), 3, "0.1")
    assert build_sweep_options("digits", "x", range(1, 3), {"lr": 1}).workers == (1, 2)
    assert build_sweep_options("digits", "x", 2, {"track": None}).workers == (2,)


@pytest.mark.parametrize(
    ("option", "text", "right"), [("batch_size", "128:16", "16:128"), ("lr", "0.5:0.01", "0.01:0.5")]
)
def test_range_in_the_wrong_order_is_refused_with_the_right_one(option, text, right):
    options = build_options(**{option: text})
    with raises_code("option-format", text, right):
        options.batches_per_worker(), options.initial_lr_and_bounds()


def test_function_that_cannot_travel_is_refused():
    lock = threading.Lock()
    with raises_code("workload-invalid", "notebook:make@0", "inside of the function"):
        require_picklable("notebook:make@0", lambda config: lock)
    require_picklable("notebook:make@0", lambda config: 1)
