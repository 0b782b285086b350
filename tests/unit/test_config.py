import subprocess
import sys
from typing import get_args

import pytest

from equipoise.config import OptimizerName, TrainConfig
from equipoise.registries.optimizer_registry import OPTIMIZERS
from tests.support.errors import raises_code


def test_configs_are_compared_by_value():
    assert TrainConfig(workload="digits", batch_size=64) == TrainConfig(workload="digits", batch_size=64)
    assert TrainConfig(workload="digits", seed=1) != TrainConfig(workload="digits")


def test_global_batch_counts_workers_and_micro_batches():
    config = TrainConfig(workload="digits", workers=3, batch_size=16, grad_accumulation=2)
    assert (config.num_micro_batches, config.global_batch) == (6, 96)


@pytest.mark.parametrize(
    "name",
    ["workers", "batch_size", "grad_accumulation", "threads", "max_examples", "eval_every", "image_size", "patience"],
)
@pytest.mark.parametrize("value", [0, -3])
def test_counts_below_one_are_refused(name, value):
    with raises_code("option-range", name, value):
        TrainConfig(workload="digits", **{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 0, 0.0, 1e18])
def test_invalid_learning_rate_is_refused(value):
    with raises_code("option-range", "lr"):
        TrainConfig(workload="digits", lr=value)


def test_learning_rates_from_1e_12_to_1e6_are_accepted():
    for lr in (1e-12, 1e6):
        assert TrainConfig(workload="digits", lr=lr).lr == lr
    for lr in (0.99e-12, 1.01e6):
        with raises_code("option-range", "from 1e-12 to 1e+06"):
            TrainConfig(workload="digits", lr=lr)


@pytest.mark.parametrize("name", ["optimizer", "schedule", "precision", "keep"])
def test_unknown_choice_is_refused_with_the_valid_ones(name):
    with raises_code("option-choice", name, "'bogus'") as refusal:
        TrainConfig(workload="digits", **{name: "bogus"})
    assert refusal.value.code == "option-choice"


def test_optimizers_to_choose_from_are_those_of_the_registry():
    assert get_args(OptimizerName) == tuple(OPTIMIZERS)
    assert all(hasattr(TrainConfig, option) for entry in OPTIMIZERS.values() for option in
               entry.option_by_argument.values())  # fmt: skip


def test_options_are_read_without_importing_torch():
    code = "import sys; import equipoise.config; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_target_that_is_not_finite_is_refused(value):
    with raises_code("option-range", "target", value):
        TrainConfig(workload="digits", target=value)


def test_seed_of_more_than_63_bits_is_refused():
    assert TrainConfig(workload="digits", seed=(1 << 63) - 1).seed == 2**63 - 1
    with raises_code("option-range", "seed"):
        TrainConfig(workload="digits", seed=1 << 63)
    with raises_code("option-range", "seed"):
        TrainConfig(workload="digits", seed=1 << 64)


@pytest.mark.parametrize("value", [1, 1.5, -0.1, float("nan"), float("inf")])
def test_momentum_that_never_decays_is_refused(value):
    with raises_code("option-range", "momentum"):
        TrainConfig(workload="digits", momentum=value)
