"""Names of recipes in a sweep, and the options of training that they stand for."""

from dataclasses import replace

import pytest

from equipoise.config import TrainConfig
from equipoise.registries.sweep_recipes import RECIPE_FORMS, find_lr_factor, parse_recipe, parse_recipes
from tests.support.errors import raises_code


def test_names_between_spaces_or_commas_are_parsed_with_the_plain_recipe_first():
    recipes = parse_recipes(["lars:0.05,lamb", "mixup:0.2", "plain", "lamb"])
    assert [recipe.name for recipe in recipes] == ["plain", "lars:0.05", "lamb", "mixup:0.2"]
    assert [recipe.options for recipe in recipes] == [
        {},
        {"optimizer": "lars", "trust": 0.05},
        {"optimizer": "lamb"},
        {"mixup": 0.2},
    ]


def test_parts_are_put_together():
    assert parse_recipe("adamw+smoothing:0.1").options == {"optimizer": "adamw", "label_smoothing": 0.1}
    with raises_code("option-conflict", "--optimizer twice"):
        parse_recipe("adamw+lamb")


@pytest.mark.parametrize("name", [*RECIPE_FORMS])
def test_each_recipe_sets_options_that_training_has(name):
    form = RECIPE_FORMS[name]
    recipe = parse_recipe(f"{name}:0.5" if form.number else name)
    trial = replace(TrainConfig(workload="digits"), **recipe.options)
    assert name == "plain" or trial != TrainConfig(workload="digits")


def test_warm_up_of_epochs_replaces_that_of_examples():
    trial = replace(TrainConfig(workload="text", warmup_examples=1000), **parse_recipe("warmup:5").options)
    assert trial.with_defaults({"warmup_examples": 1000}).warmup_examples is None


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("option-choice", "lion", "'lion'"),
        ("option-choice", "", "''"),
        ("option-choice", "linear", "--scaling-rule"),
        ("option-choice", "grow:2", "--grow-batch"),
        ("option-format", "mixup", "needs a number"),
        ("option-format", "lamb:2", "takes no number"),
        ("option-format", "mixup:much", "has no number"),
        ("option-format", "mixup:nan", "has no number"),
        ("option-format", "mixup:", "has no number"),
    ],
)
def test_other_names_are_refused(code, name, words):
    with raises_code(code, words):
        parse_recipes(["lamb", name])


def test_rates_of_another_optimizer_are_searched_from_its_usual_ones():
    assert find_lr_factor(parse_recipe("mixup:0.2"), "adamw") == 1
    assert find_lr_factor(parse_recipe("lamb"), "sgd") == pytest.approx(0.2)
    assert find_lr_factor(parse_recipe("sgd+clip:1"), "lamb") == pytest.approx(5)
    assert find_lr_factor(parse_recipe("lamb"), "an optimizer of its own") == pytest.approx(0.2)
