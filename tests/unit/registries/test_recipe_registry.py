import pytest

from equipoise.config import TrainConfig
from equipoise.formatting import format_flag
from equipoise.registries.recipe_registry import BatchGrowth, GrowthStage, parse_growth, scale_lr
from equipoise.training.loop import Training
from tests.support.errors import raises_code


def test_growth_is_parsed():
    assert not parse_growth("none")
    assert parse_growth("auto") == BatchGrowth(follows_noise=True) and parse_growth("auto")
    stages = (GrowthStage(2, 20000), GrowthStage(4, 60000))
    assert parse_growth("2@20000,4@60000") == BatchGrowth(stages) and parse_growth("2@20000")


@pytest.mark.parametrize("text", ["", "2", "2@", "@5", "1@5", "2@0", "2@5,", "1.5@5", "-2@5", "2@5;4@9", "Auto"])
def test_other_texts_are_no_growth(text):
    with raises_code("option-choice", "2@20000"):
        TrainConfig(workload="digits", grow_batch=text)


@pytest.mark.parametrize("text", ["2@5,2@9", "4@5,2@9", "2@9,4@9", "2@9,4@5", "2000000@5"])
def test_growth_rises(text):
    with raises_code("option-range", text):
        TrainConfig(workload="digits", grow_batch=text)


@pytest.mark.parametrize(("rule", "expected"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)])
def test_learning_rate_follows_the_batch(rule, expected):
    assert scale_lr(rule, 0.1, 128, 32) == pytest.approx(expected, rel=1e-15)
    config = TrainConfig(workload="digits", scaling_rule=rule, lr=0.1, workers=2, batch_size=32, grad_accumulation=2)
    resolved = config.with_defaults()
    assert resolved.lr == pytest.approx(expected, rel=1e-15)
    assert resolved.with_defaults() == resolved  # what a record holds has the rate of its batch
    assert resolved.scaling_rule == rule and resolved.base_batch == (32 if rule == "none" else 128)


def test_rate_of_a_workload_is_scaled_where_none_is_given():
    training = Training(TrainConfig(workload="digits", batch_size=64, scaling_rule="linear", max_examples=64, warmup=0))
    (lap,) = training.laps()
    assert lap.lr == training.config.lr == pytest.approx(2 * TrainConfig(workload="digits").with_defaults().lr)


def test_a_rule_needs_no_more_than_its_base():
    with raises_code("option-conflict", "--scaling-rule"):
        TrainConfig(workload="digits", base_batch=64)
    with raises_code("option-choice", "--scaling-rule"):
        TrainConfig(workload="digits", scaling_rule="cubic")
    with raises_code("option-range", "lr"):
        TrainConfig(workload="digits", scaling_rule="linear", lr=1e6, batch_size=64).with_defaults()


@pytest.mark.parametrize("name", ["label_smoothing", "average_weights"])
@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_shares_are_from_0_to_below_1(name, value):
    with raises_code("option-range", format_flag(name)):
        TrainConfig(workload="digits", **{name: value})


@pytest.mark.parametrize("name", ["mixup", "trust"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_other_numbers_are_finite_and_not_negative(name, value):
    with raises_code("option-range", format_flag(name)):
        TrainConfig(workload="digits", **{name: value})


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
@pytest.mark.parametrize("sharding", ["full", "tensor:2"])
def test_norms_of_weights_that_workers_divide_are_not_known_to_them(optimizer, sharding):
    with raises_code("option-conflict", optimizer, "--sharding optimizer"):
        TrainConfig(workload="digits", workers=2, optimizer=optimizer, sharding=sharding)
    for kind in ("optimizer", "pipeline:2"):
        TrainConfig(workload="digits", workers=2, optimizer=optimizer, sharding=kind)
