"""What can be learned, by name."""

import importlib
from collections.abc import Callable

from equipoise.config import TrainConfig
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.cifar10 import cifar10
from equipoise.workloads.digits import digits
from equipoise.workloads.fashion_mnist import fashion_mnist
from equipoise.workloads.image_folder import image_folder
from equipoise.workloads.validation import call_user_code, validate_workload
from equipoise.workloads.vending import vending, vending_source

__all__ = ["WORKLOADS", "Split", "Workload", "workload"]

WORKLOADS: dict[str, Callable[[TrainConfig], Workload]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "folder": image_folder,
    "vending": vending,
    "vending-source": vending_source,
}


def load_workload(config: TrainConfig) -> Workload:
    """The workload that `trial` names, checked against what the trial asks of it."""
    found = find_workload_factory(config.workload)
    return validate_workload(call_user_code(config.workload, lambda: found(config)), config)


def find_workload_factory(name: str) -> Callable[[TrainConfig], Workload]:
    """The function behind a workload's name, or behind a user's module:attribute."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"no workload {name!r}; there are: {', '.join(sorted(WORKLOADS))}, or give module:attribute")
    found = getattr(
        call_user_code(f"importing workload {name!r}", lambda: importlib.import_module(module)), attribute, None
    )
    if found is None:
        raise ValueError(f"no workload {name!r}: module {module!r} has no {attribute!r}")
    if not callable(found):
        raise ValueError(f"workload {name!r} is a {type(found).__name__}; give a function from a Trial to a Workload")
    return found  # type: ignore[no-any-return]  # a user's own: what it returns is checked
