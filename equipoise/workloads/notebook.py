"""Workloads whose function lives in a notebook or script: found by a name with the digest of their source.

The function itself travels inside the job only: the process that sweeps registers it, and so do the worker processes.
A record or plan holds its name, so that a sweep does not go on with a function that has changed. Functions and values
that it uses are not in the digest; the data of a sweep are, by a digest of their own.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError

NOTEBOOK_PREFIX = "notebook"  # no module of a user's workload may have this name
DIGEST_LENGTH = 12  # hexadecimal digits

WorkloadFactory = Callable[[TrainConfig], Any]
NOTEBOOK_WORKLOADS: dict[str, WorkloadFactory] = {}
"""functions that this process has registered, by the name in `TrainConfig.workload`"""


def register_factory(name: str, factory: WorkloadFactory) -> None:
    """Make a function available to `load_workload` in this process, under a name from `name_factory`."""
    NOTEBOOK_WORKLOADS[name] = factory


def name_factory(factory: WorkloadFactory) -> str:
    """Return the name of a function for `TrainConfig.workload`: module:attribute where it can be imported.

    Otherwise, as in a notebook, notebook:NAME@DIGEST.
    """
    if not inspect.isfunction(factory):
        raise EquipoiseError(
            "workload-invalid",
            f"cannot use a {type(factory).__name__} as a workload",
            "give a function that takes a TrainConfig and returns a Workload",
        )
    module = factory.__module__
    if module != "__main__" and getattr(sys.modules.get(module), factory.__name__, None) is factory:
        return f"{module}:{factory.__name__}"
    words = re.sub(r"\W", "", factory.__name__) or "function"
    return f"{NOTEBOOK_PREFIX}:{words}@{digest_source(factory)}"


def digest_source(factory: WorkloadFactory) -> str:
    """Return a digest of a function's source text, or of its bytecode where its source is not known."""
    try:
        content = inspect.getsource(factory)
    except OSError:
        content = describe_bytecode(factory.__code__)
    return hashlib.sha256(content.encode()).hexdigest()[:DIGEST_LENGTH]


def describe_bytecode(code: CodeType) -> str:
    """Describe what a code object does, without the file and lines that it came from; of nested functions as well."""
    constants = [
        describe_bytecode(value)
        if isinstance(value, CodeType)
        else repr(sorted(value, key=repr))
        if isinstance(value, frozenset)
        else repr(value)
        for value in code.co_consts
    ]
    return repr((code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, constants))


def find_notebook_factory(name: str) -> WorkloadFactory:
    """Return the function of a notebook by its name; refuse one that is not registered in this process."""
    if name not in NOTEBOOK_WORKLOADS:
        raise EquipoiseError(
            "workload-unknown",
            f"cannot load {name}: its function is not kept, it was in the notebook that swept it",
            "call equipoise.sweep with the same function, or write it into a module and give module:attribute",
        )
    return NOTEBOOK_WORKLOADS[name]
