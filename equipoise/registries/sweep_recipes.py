"""Recipes that a sweep compares, by name: each is some options of training beside those of the sweep."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from equipoise.errors import EquipoiseError

PLAIN_RECIPE = "plain"
RecipeValue = str | float | None


class RecipeForm(NamedTuple):
    """What the name of a recipe stands for."""

    options: Mapping[str, RecipeValue] = MappingProxyType({})
    """options of training that have fixed values"""
    number: str = ""
    """option of training that takes the number after the colon; empty where there is none"""
    needs_number: bool = False
    """whether the number may not be left out"""


RECIPE_FORMS = {
    PLAIN_RECIPE: RecipeForm(),
    "sgd": RecipeForm({"optimizer": "sgd"}),
    "adamw": RecipeForm({"optimizer": "adamw"}),
    "lars": RecipeForm({"optimizer": "lars"}, "trust"),
    "lamb": RecipeForm({"optimizer": "lamb"}),
    "smoothing": RecipeForm(number="label_smoothing", needs_number=True),
    "mixup": RecipeForm(number="mixup", needs_number=True),
    "average": RecipeForm(number="average_weights", needs_number=True),
    "clip": RecipeForm(number="clip_norm", needs_number=True),
    "warmup": RecipeForm({"warmup_examples": None}, "warmup", needs_number=True),
    "one-cycle": RecipeForm({"schedule": "one-cycle"}),
    "cosine": RecipeForm({"schedule": "cosine"}),
}
"""recipes that leave the batch, and the search of its learning rate, as they are"""
RECIPE_EXAMPLES = "lars:0.05, lamb, mixup:0.2, average:0.98 or adamw+smoothing:0.1"
OPTIMIZER_LR_FACTORS = {"sgd": 1.0, "lars": 2.0, "adamw": 0.1, "lamb": 0.2}
"""usual learning rates, over those of SGD, from which the search begins: the best ones on digits and patches"""
FIXED_BATCH_RECIPES = ("linear", "sqrt", "grow", "auto")  # asked for by the names of their options


class Recipe(NamedTuple):
    """Recipe that the trials of a sweep have."""

    name: str
    options: dict[str, RecipeValue]
    """options of training that differ from those of the sweep"""


def find_lr_factor(recipe: Recipe, optimizer: str) -> float:
    """Return the usual learning rate of a recipe over that of the optimizer that the sweep has without it."""
    own = str(recipe.options.get("optimizer", optimizer))
    return OPTIMIZER_LR_FACTORS.get(own, 1.0) / OPTIMIZER_LR_FACTORS.get(optimizer, 1.0)


def parse_recipes(texts: Sequence[str]) -> tuple[Recipe, ...]:
    """Parse the value of --recipes, names between spaces or commas; the plain recipe is always the first."""
    names = [name.strip() for text in texts for name in text.split(",")]
    recipes = [parse_recipe(name) for name in (PLAIN_RECIPE, *names)]
    return tuple({recipe.name: recipe for recipe in recipes}.values())


def parse_recipe(name: str) -> Recipe:
    """Parse one name, or several with a plus sign between them."""
    options: dict[str, RecipeValue] = {}
    for part in name.split("+"):
        for option, value in parse_part(part).items():
            if option in options:
                raise EquipoiseError(
                    "option-conflict",
                    f"cannot use the recipe {name[:40]!a}: it sets --{option.replace('_', '-')} twice",
                    "omit one of its parts",
                )
            options[option] = value
    return Recipe(name, options)


def parse_part(part: str) -> dict[str, RecipeValue]:
    """Return the options of one part of a name."""
    kind, colon, text = part.partition(":")
    if kind in FIXED_BATCH_RECIPES:
        raise EquipoiseError(
            "option-choice",
            f"cannot compare {kind!a} in a sweep: it searches the learning rate of each batch, and its batches stay as"
            " they are",
            "compare them in runs of equipoise train, with --scaling-rule or --grow-batch",
        )
    form = RECIPE_FORMS.get(kind)
    if form is None:
        known = ", ".join(RECIPE_FORMS)
        raise EquipoiseError(
            "option-choice", f"there is no recipe {part[:40]!a}", f"choose from {known}, such as {RECIPE_EXAMPLES}"
        )
    if (colon and not form.number) or (form.needs_number and not colon):
        what = "takes no number" if colon else "needs a number"
        raise EquipoiseError(
            "option-format", f"the recipe {kind} {what}, got {part[:40]!a}", f"write it such as {RECIPE_EXAMPLES}"
        )
    return dict(form.options) | ({form.number: parse_recipe_number(part, text)} if colon else {})


def parse_recipe_number(part: str, text: str) -> float:
    """Parse the number of a recipe; its range is that of its option."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise EquipoiseError(
            "option-format",
            f"the recipe {part[:40]!a} has no number after its colon",
            f"write it such as {RECIPE_EXAMPLES}",
        )
    return number
