"""Check a workload before anything is started for it, and report what is wrong in one sentence."""

import math
from difflib import get_close_matches
from functools import partial

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.registries.option_groups import DEFAULTED_OPTIONS, OPTION_DEFAULTS
from equipoise.workloads.base import Unit, Workload
from equipoise.workloads.checks.image_checks import check_normalization
from equipoise.workloads.checks.model_checks import WORKLOAD_SPLITS, check_model
from equipoise.workloads.checks.recipe_checks import check_recipes
from equipoise.workloads.checks.split_checks import check_split
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.user_code import call_user_code

COUNT_OPTIONS = ("warmup_examples", "eval_every")  # options with a default that are whole numbers


def validate_workload(workload: object, config: TrainConfig) -> Workload:
    """Return `workload` if its parts fit each other and the config; refuse it otherwise."""
    name = config.name
    if not isinstance(workload, Workload):
        raise EquipoiseError(
            "workload-invalid",
            f"{name} returned a {type(workload).__name__}",
            "it must return an equipoise.Workload, such as an equipoise.ImageWorkload",
        )
    check_names(name, workload)
    for part in WORKLOAD_SPLITS:
        description = f"{name}: its {part} split"
        split = getattr(workload, part)
        call_user_code(description, partial(check_split, description, split, workload))
    if config.global_batch > len(workload.train):
        raise EquipoiseError(
            "workload-invalid",
            f"the global batch is {config.global_batch} ({config.workers} workers "
            f"x {config.batch_size} x {config.grad_accumulation}), "
            f"but the training split of {name} holds {len(workload.train)} examples",
            "choose a smaller --batch-size",
        )
    check_recipes(name, workload, config)
    check_target(name, workload, config)
    check_defaults(name, workload)
    if isinstance(workload, ImageWorkload):
        call_user_code(f"{name}: its mean or std", partial(check_normalization, name, workload))
    check_model(name, workload, config)
    return workload


def check_names(name: str, workload: Workload) -> None:
    """Refuse a name or classes that are not texts, and a unit in which nothing can be counted."""
    classes = call_user_code(f"{name}: its classes", lambda: list(workload.classes))
    unit = workload.unit
    is_unit = isinstance(unit, Unit) and isinstance(unit.name, str) and isinstance(unit.per_example, int)
    texts = {"name": workload.name, "metric_name": workload.metric_name}
    if nameless := [field for field, text in texts.items() if not isinstance(text, str) or not text.strip()]:
        problem, remedy = f"its {nameless[0]} is {texts[nameless[0]]!r}", "it must be a text"
    elif isinstance(workload.classes, str) or not all(isinstance(label, str) for label in classes):
        problem, remedy = f"its classes are {workload.classes!r}", "they must be a list of texts"
    elif len(set(classes)) < len(classes):
        repeated = next(label for label in classes if classes.count(label) > 1)
        problem, remedy = f"its classes have {repeated!r} twice", "give each another name"
    elif not is_unit or not unit.name.strip() or unit.per_example < 1:
        problem = f"its unit is {unit!r}"
        remedy = "give a name and a whole number of at least 1, such as Unit('tokens', per_example=64)"
    else:
        return
    raise EquipoiseError("workload-invalid", f"{name}: {problem}", remedy)


def check_target(name: str, workload: Workload, config: TrainConfig) -> None:
    """Refuse a target that is no number, and one of a workload for a metric in the other direction."""
    target = workload.target
    is_number = isinstance(target, int | float) and not isinstance(target, bool)
    if target is not None and not (is_number and math.isfinite(target)):
        raise EquipoiseError(
            "workload-invalid", f"{name}: its target is {target!r}", "it must be a finite number or None"
        )
    if not isinstance(workload.lower_is_better, bool):
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its lower_is_better is {workload.lower_is_better!r}",
            "it must be True or False",
        )
    if config.lower_is_better and not workload.lower_is_better and target is not None and config.target is None:
        raise EquipoiseError(
            "option-conflict",
            f"cannot apply --lower-is-better to {name}: its target of {target:g} is for a metric that rises",
            "give --target, or set lower_is_better of the workload",
        )


def check_defaults(name: str, workload: Workload) -> None:
    """Refuse defaults that are no options of training, or whose values these do not take."""
    defaults = call_user_code(f"{name}: its defaults", lambda: dict(workload.defaults))
    if unknown := [option for option in defaults if option not in DEFAULTED_OPTIONS]:
        similar = "".join(
            f"did you mean {match!r}? " for match in get_close_matches(str(unknown[0]), DEFAULTED_OPTIONS, 1)
        )
        raise EquipoiseError(
            "workload-invalid",
            f"{name}: its defaults have {unknown[0]!r}",
            f"{similar}choose among {', '.join(sorted(DEFAULTED_OPTIONS))}",
        )
    for option, value in defaults.items():
        kind = int if option in COUNT_OPTIONS else type(OPTION_DEFAULTS[option])
        accepted = (int, float) if kind is float else kind
        if isinstance(value, bool) or not isinstance(value, accepted):
            raise EquipoiseError(
                "workload-invalid",
                f"{name}: its defaults have {value!r} for {option}",
                f"give a value of type {kind.__name__}, or leave it out",
            )
    try:
        TrainConfig(workload=name, **defaults)
    except EquipoiseError as error:
        raise error.within(f"{name}: its defaults") from error
