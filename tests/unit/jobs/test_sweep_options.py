"""Options of a sweep that a function call gives, and those that it must not."""

import threading
from pathlib import Path

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


@pytest.mark.parametrize("name", ["bacth_size", "keep", "command", "workload", "config"])
def test_other_options_are_refused_by_name(name):
    with raises_code("option-unknown", name, "batch_size"):
        build_options(**{name: 1})


@pytest.mark.parametrize("targets", [[float("nan")], [0.9, float("inf")]])
def test_target_that_is_no_finite_number_is_refused(targets):
    with raises_code("option-range", "target"):
        build_options(target=targets).validate()


def test_function_that_cannot_travel_is_refused():
    lock = threading.Lock()
    with raises_code("workload-invalid", "notebook:make@0", "inside of the function"):
        require_picklable("notebook:make@0", lambda config: lock)
    require_picklable("notebook:make@0", lambda config: 1)
