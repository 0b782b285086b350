"""What can be learned, by name."""

import importlib
from collections.abc import Callable

from equipoise.trial import Trial
from equipoise.workloads.cifar10 import cifar10
from equipoise.workloads.digits import digits
from equipoise.workloads.fashion_mnist import fashion_mnist
from equipoise.workloads.folder import folder
from equipoise.workloads.workload import Split, Workload

__all__ = ["WORKLOADS", "Split", "Workload", "workload"]

WORKLOADS: dict[str, Callable[[Trial], Workload]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "folder": folder,
}


def workload(trial: Trial) -> Workload:
    """The workload that `trial` names, checked against what the trial asks of it."""
    made = maker(trial.workload)(trial)
    if not isinstance(made, Workload):
        raise ValueError(
            f"{trial.workload} made a {type(made).__name__}; it must return an equipoise.workloads.Workload"
        )
    if trial.global_batch > len(made.train):
        raise ValueError(
            f"the global batch is {trial.global_batch} ({trial.workers} workers x {trial.batch} x {trial.accumulate}), "
            f"but the training split of {trial.workload} holds {len(made.train)} examples: choose a smaller --batch"
        )
    return made


def maker(name: str) -> Callable[[Trial], Workload]:
    """The function behind a workload's name, or behind a user's module:attribute."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"no workload {name!r}; there are: {', '.join(sorted(WORKLOADS))}, or give module:attribute")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"no workload {name!r}: {error}") from error
    if not callable(found):
        raise ValueError(f"workload {name!r} is a {type(found).__name__}; give a function from a Trial to a Workload")
    return found  # type: ignore[no-any-return]  # what it returns is checked when it is called
