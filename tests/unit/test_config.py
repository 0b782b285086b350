import inspect
import subprocess
import sys
from dataclasses import replace
from typing import get_args

import pytest
import torch

from equipoise.config import OptimizerName, TrainConfig
from equipoise.formatting import format_flag
from equipoise.registries.optimizer_registry import OPTIMIZERS
from equipoise.registries.option_groups import COMMAND_OPTIONS, OPTION_DEFAULTS, SHARED_OPTIONS
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
    with raises_code("option-range", format_flag(name), value):
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


def test_defaults_are_those_of_torch_and_of_the_papers():
    config = TrainConfig(workload="digits").with_defaults()
    adamw = inspect.signature(torch.optim.AdamW).parameters
    assert (config.beta2, config.epsilon) == (adamw["betas"].default[1], adamw["eps"].default)
    assert (config.outer_lr, config.outer_momentum) == (0.7, 0.9)  # DiLoCo (Douillard et al., 2023)
    assert config.trust == 0.001 and config.momentum == 0.9  # LARS (You et al., 2017)


def test_a_run_without_options_is_plain_training_on_one_worker():
    config = TrainConfig(workload="digits")
    assert (config.workers, config.grad_accumulation, config.threads, config.seed, config.servers) == (1, 1, 1, 0, 0)
    off = ("label_smoothing", "mixup", "average_weights", "freeze_stages", "recompute", "compile", "channels_last")
    assert not any(getattr(config, name) for name in (*off, "lower_is_better"))
    assert all(getattr(config, name) for name in ("augment", "error_feedback", "reuse_head"))
    resolved = config.with_defaults()
    assert {name: getattr(resolved, name) for name in OPTION_DEFAULTS} == OPTION_DEFAULTS
    assert (resolved.weight_decay, resolved.clip_norm) == (0, 0)


def test_defaults_of_a_workload_go_before_the_general_ones_and_options_before_both():
    defaults = {"lr": 0.3, "warmup_examples": 500, "eval_every": 70}
    resolved = TrainConfig(workload="digits").with_defaults(defaults)
    assert (resolved.lr, resolved.warmup_examples, resolved.eval_every) == (0.3, 500, 70)
    given = TrainConfig(workload="digits", lr=0.2, warmup=2.0, eval_every=9).with_defaults(defaults)
    assert (given.lr, given.warmup, given.warmup_examples, given.eval_every) == (0.2, 2.0, None, 9)
    assert TrainConfig(workload="digits", warmup_examples=8).with_defaults(defaults).warmup_examples == 8


def test_a_workload_or_a_command_is_needed_and_not_both():
    with raises_code("option-missing", "--workload or --command"):
        TrainConfig()
    with raises_code("option-conflict", "both --workload and --command"):
        TrainConfig(workload="digits", command="train")
    with raises_code("option-format"):
        TrainConfig(command="train 'open")
    assert TrainConfig(workload="digits").name == "digits"
    command = TrainConfig(command="python train.py --lr {lr}")
    assert (command.name, command.lr) == ("train.py", OPTION_DEFAULTS["lr"])
    assert TrainConfig(command="train", lr=0.3).lr == 0.3


@pytest.mark.parametrize("name", ["model", "data", "label", "image_size", "precision", "keep", "momentum", "augment"])
def test_options_of_training_have_no_effect_on_a_command(name):
    values = {"model": "lenet", "label": "y", "image_size": 8, "data": "x"}
    values |= {"precision": "bf16", "keep": "best", "momentum": 0.5, "augment": False}
    with raises_code("option-conflict", f"--{name.replace('_', '-')} has no effect on a --command"):
        TrainConfig(command="train", **{name: values[name]})


def test_options_that_a_command_shares_are_taken():
    values = {"workers": 2, "batch_size": 8, "lr": 0.3, "seed": 3, "threads": 2, "target": 0.5, "lower_is_better": True}
    values |= {"max_examples": 100, "patience": 2}
    assert values.keys() == SHARED_OPTIONS
    config = TrainConfig(command="train", **values)
    assert {name: getattr(config, name) for name in values} == values


def test_patterns_need_a_command_and_each_other():
    pair = {"metric_pattern": "a=(.*)", "examples_pattern": "b=(.*)"}
    assert TrainConfig(command="train", **pair).metric_pattern == "a=(.*)"
    for name in pair:
        with raises_code("option-missing", "need each other"):
            TrainConfig(command="train", **{name: pair[name]})
        assert name in COMMAND_OPTIONS
    with raises_code("option-conflict", "--metric-pattern has no effect without --command"):
        TrainConfig(workload="digits", **pair)


def test_adapters_need_weights_to_start_from_and_freeze_all_others():
    assert TrainConfig(workload="text", lora_rank=4, init_from="run").lora_rank == 4
    with raises_code("option-conflict", "without --init-from"):
        TrainConfig(workload="text", lora_rank=4)
    with raises_code("option-conflict", "omit --freeze-stages"):
        TrainConfig(workload="text", lora_rank=4, init_from="run", freeze_stages=1)
    assert TrainConfig(workload="digits", freeze_stages=1, init_from="run").freeze_stages == 1


def test_options_are_checked_by_every_copy():
    config = TrainConfig(workload="digits", workers=4)
    with raises_code("all-reduce-unusable"):
        replace(config, workers=3, all_reduce="doubling")
    with raises_code("option-conflict"):
        replace(config, servers=2)
    with raises_code("option-range"):
        replace(config, sync="server", servers=5)
    with raises_code("sharding-unusable"):
        replace(config, sharding="tensor:3")
    with raises_code("option-conflict"):
        replace(config, average_weights=0.9, sync="local:2")
    with raises_code("option-conflict"):
        replace(config, grow_batch="2@100", sync="local:2")
    with raises_code("option-conflict"):
        replace(config, sync="server", compression="int8")
