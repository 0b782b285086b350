"""A sweep from a notebook or script: that of the command `equipoise sweep`, with a function as its workload."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from equipoise.config import TrainConfig
    from equipoise.planning.document import PlanDocument
    from equipoise.workloads import Workload


def sweep(
    make_workload: "Callable[[TrainConfig], Workload]",
    *,
    out: "str | Path",
    workers: Sequence[int] = (1, 2),
    **options: Any,
) -> "PlanDocument":
    """Find how many workers, what batch and what learning rate reach the target soonest, and confirm it by a run.

    The function may be defined in the notebook: Ray takes it to the workers inside the job, and records name it by the
    digest of its source. Nothing of it is kept in the folder, so that `train --plan` needs it in a module. A sweep that
    was interrupted goes on when it is called again with the same function and options.

    Args:
        make_workload: function that takes a `TrainConfig` and returns a `Workload`
        out: folder or URL for tables, records, plan.json and the confirmation run
        workers: numbers of workers to choose from
        options: further options of `equipoise sweep` by their names, such as `batch_size="8:128"`,
            `target=[2.4, 2.2]`, `budget_seconds=60` or `optimizer="adamw"`

    Returns:
        the plan with its status, which is "confirmed" if the confirmation run agrees
    """
    if "ray" not in sys.modules:  # Ray reads how far it may listen when it is imported
        import_module("jobs").isolate_local_ray()
    document: PlanDocument = import_module("jobs.ray_tune.sweep").sweep_function(make_workload, out, workers, options)
    return document
