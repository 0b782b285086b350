"""Workloads by name: the built-in ones and users' own as module:attribute."""

import importlib
from collections.abc import Callable, Sequence

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.workloads.base import Split, Unit, Workload
from equipoise.workloads.cifar10 import cifar10
from equipoise.workloads.detection.boxes_folder import boxes
from equipoise.workloads.detection.shelf import shelf
from equipoise.workloads.detection.workload import BoxWorkload
from equipoise.workloads.digits import digits
from equipoise.workloads.fashion_mnist import fashion_mnist
from equipoise.workloads.image_folder import image_folder
from equipoise.workloads.image_workload import ImageWorkload
from equipoise.workloads.notebook import NOTEBOOK_PREFIX, find_notebook_factory
from equipoise.workloads.table import table
from equipoise.workloads.text.language_model import text
from equipoise.workloads.user_code import call_user_code
from equipoise.workloads.validation import validate_workload
from equipoise.workloads.vending import vending, vending_source

__all__ = ["WORKLOADS", "BoxWorkload", "ImageWorkload", "Split", "Unit", "Workload", "load_workload"]

WORKLOADS: dict[str, Callable[[TrainConfig], Workload]] = {
    "boxes": boxes,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "folder": image_folder,
    "shelf": shelf,
    "table": table,
    "text": text,
    "vending": vending,
    "vending-source": vending_source,
}


UNUSED_OPTIONS: dict[str, Sequence[str]] = {
    **{name: ["label"] for name in WORKLOADS},
    "table": ["image_size", "channels_last"],
    "text": ["label", "image_size", "channels_last"],
}
"""options of another kind of data that a built-in workload would ignore"""


def load_workload(config: TrainConfig) -> Workload:
    """Build the workload that `config` names, and check that its parts fit each other and the config."""
    factory = find_workload_factory(config.name)
    require_used_options(config)
    return validate_workload(call_user_code(config.name, lambda: factory(config), may_refuse=True), config)


def require_used_options(config: TrainConfig) -> None:
    """Refuse an option that the workload would ignore, such as --image-size of a text."""
    for option in UNUSED_OPTIONS.get(config.name, ()):
        if getattr(config, option) not in (None, False):
            raise EquipoiseError(
                "option-conflict",
                f"--{option.replace('_', '-')} has no effect on the workload {config.name}",
                "leave it out",
            )


def find_workload_factory(name: str) -> Callable[[TrainConfig], Workload]:
    """Return the function that builds a workload, by its name or a user's module:attribute."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, colon, attribute = name.partition(":")
    if module == NOTEBOOK_PREFIX:
        return find_notebook_factory(name)
    if not (module and colon and attribute):
        raise EquipoiseError(
            "workload-unknown",
            f"there is no workload {name!r}",
            f"choose one of: {', '.join(sorted(WORKLOADS))}, or give module:attribute",
        )
    factory = getattr(
        call_user_code(f"importing workload {name!r}", lambda: import_user_module(module)), attribute, None
    )
    if factory is None:
        raise EquipoiseError(
            "workload-unknown", f"there is no workload {name!r}: module {module!r} has no {attribute!r}"
        )
    if not callable(factory):
        raise EquipoiseError(
            "workload-invalid",
            f"workload {name!r} is a {type(factory).__name__}",
            "give a function that takes a TrainConfig and returns a Workload",
        )
    return factory  # type: ignore[no-any-return]  # a user's own: its result is checked


def import_user_module(module: str) -> object:
    """Import the module of a user's workload; refuse one that does not exist."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that the user's own imports
        file = f"{module.replace('.', '/')}.py"
        raise EquipoiseError(
            "workload-unknown", f"cannot import {module}", f"start the command in the folder that holds {file}"
        ) from None
