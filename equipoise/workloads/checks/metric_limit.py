"""The best value that a metric can have, where it is one of ours: no run reaches a target beyond it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from equipoise.errors import EquipoiseError
from equipoise.runs.target import Target
from equipoise.workloads.base import Workload
from equipoise.workloads.detection.box_metric import coco_precision
from equipoise.workloads.image_workload import top1_correct
from equipoise.workloads.table.regression import r2_score
from equipoise.workloads.text.nats import window_nats

BEST_METRICS: Mapping[Callable[..., Any], float] = MappingProxyType(
    {top1_correct: 1.0, r2_score: 1.0, coco_precision: 1.0, window_nats: 0.0}
)


def find_best_metric(workload: Workload) -> float | None:
    """Return the best value that the metric of a workload can have; None if it is not known."""
    return BEST_METRICS.get(workload.score or workload.metric)


def require_possible_target(workload: Workload, target: Target) -> None:
    """Refuse a target beyond the best value of the metric, such as 95 for a share of right answers."""
    best = find_best_metric(workload)
    if best is None or target.value is None or not target.is_better(target.value, best):
        return
    raise EquipoiseError(
        "option-range",
        f"cannot sweep to a target of {target.describe()}: the metric of {workload.name} is {best:g} at best",
        f"give a --target {'above' if target.lower_is_better else 'below'} {best:g}",
    )
