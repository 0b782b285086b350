"""What can be learned, by name."""

import importlib
from collections.abc import Callable

from equipoise.config import Trial
from equipoise.workloads.base import Split, Workload
from equipoise.workloads.cifar10 import cifar10
from equipoise.workloads.digits import digits
from equipoise.workloads.fashion_mnist import fashion_mnist
from equipoise.workloads.image_folder import folder
from equipoise.workloads.validation import attempt, checked
from equipoise.workloads.vending import vending, vending_source

__all__ = ["WORKLOADS", "Split", "Workload", "workload"]

WORKLOADS: dict[str, Callable[[Trial], Workload]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "folder": folder,
    "vending": vending,
    "vending-source": vending_source,
}


def workload(trial: Trial) -> Workload:
    """The workload that `trial` names, checked against what the trial asks of it."""
    found = maker(trial.workload)
    return checked(attempt(trial.workload, lambda: found(trial)), trial)


def maker(name: str) -> Callable[[Trial], Workload]:
    """The function behind a workload's name, or behind a user's module:attribute."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"no workload {name!r}; there are: {', '.join(sorted(WORKLOADS))}, or give module:attribute")
    found = getattr(attempt(f"importing workload {name!r}", lambda: importlib.import_module(module)), attribute, None)
    if found is None:
        raise ValueError(f"no workload {name!r}: module {module!r} has no {attribute!r}")
    if not callable(found):
        raise ValueError(f"workload {name!r} is a {type(found).__name__}; give a function from a Trial to a Workload")
    return found  # type: ignore[no-any-return]  # a user's own: what it returns is checked
