"""Numbers and choices of options: the last that is taken and the first that is refused."""

import math
from dataclasses import fields

import pytest

from equipoise.config import CHOICES, TrainConfig
from equipoise.formatting import format_flag
from equipoise.registries.option_groups import OPTION_DEFAULTS
from equipoise.registries.option_ranges import MINIMUM_BY_OPTION, OPTIONS_BELOW_ONE, require_ranges
from tests.support.errors import raises_code

FROM_ONE = {"workers", "batch_size", "grad_accumulation", "threads", "image_size", "max_examples", "eval_every"}
FROM_ONE |= {"patience", "lora_rank", "base_batch"}
FROM_ZERO = {"seed", "noise_scale_every", "servers", "momentum", "outer_momentum", "epsilon", "trust"}
FROM_ZERO |= {"weight_decay", "clip_norm", "warmup", "warmup_examples", "freeze_stages", "body_lr_scale"}
FROM_ZERO |= {"label_smoothing", "mixup", "average_weights"}


def build_options(**changes):
    """Return a config with some values changed that its constructor would compare with each other."""
    config = TrainConfig(workload="digits")
    for name, value in changes.items():
        object.__setattr__(config, name, value)
    return config


def test_every_number_with_a_smallest_value_is_named_here():
    assert {*MINIMUM_BY_OPTION} == FROM_ONE | FROM_ZERO


@pytest.mark.parametrize("name", sorted(FROM_ONE | FROM_ZERO))
def test_numbers_begin_at_their_smallest_value(name):
    minimum = 1 if name in FROM_ONE else 0
    require_ranges(build_options(**{name: minimum}))
    for value in (minimum - 1, minimum - 0.001, math.inf, -math.inf, math.nan):
        with raises_code(
            "option-range", f"{format_flag(name)} must be a finite number of at least {minimum}, got {value}"
        ):
            require_ranges(build_options(**{name: value}))


@pytest.mark.parametrize("name", ["momentum", "outer_momentum", "beta2", "label_smoothing", "average_weights"])
def test_shares_and_decays_stay_below_one(name):
    assert name in OPTIONS_BELOW_ONE
    for value in (0, 0.999999):
        require_ranges(build_options(**{name: value}))
    for value in (-0.001, 1, 1.001, math.nan):
        with raises_code("option-range", f"{format_flag(name)} must be"):
            require_ranges(build_options(**{name: value}))


def test_an_outer_step_moves_and_does_not_run_away():
    for value in (1e-3, 0.7, 1, 10):
        require_ranges(build_options(outer_lr=value))
    for value in (-1, 0, 10.001, 1e30, math.inf, math.nan):
        with raises_code("option-range", "--outer-lr must be above 0 and at most 10"):
            require_ranges(build_options(outer_lr=value))


def test_values_that_a_workload_fills_in_are_not_judged_before():
    options = [field.name for field in fields(TrainConfig) if field.default is None]
    require_ranges(build_options(**dict.fromkeys(options)))


def test_targets_may_be_any_finite_number():
    for target in (-5.0, 0.0, 1e9):
        require_ranges(build_options(target=target))


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_a_choice_is_left_open_only_where_a_workload_may_make_it(name):
    if name in OPTION_DEFAULTS:
        assert getattr(TrainConfig(workload="digits", **{name: None}), name) is None
        return
    with raises_code("option-choice", f"{format_flag(name)}", "got None"):
        TrainConfig(workload="digits", **{name: None})
