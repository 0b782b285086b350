"""Public interface of the library; each name is imported from its module when it is first used.

`import equipoise` alone therefore takes a few milliseconds and does not import PyTorch. What is listed in `__all__`
changes by the rules of docs/releases.md; everything else in the package may change in any release.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.boxes.found_box import FoundBox
    from equipoise.bundle.bundle import load_bundle
    from equipoise.bundle.kinds.base_bundle import Bundle
    from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
    from equipoise.bundle.kinds.image_bundle import ImageBundle
    from equipoise.bundle.kinds.predictions import NextToken, NumberPrediction, Prediction, TextPrediction
    from equipoise.bundle.kinds.table_bundle import TableBundle
    from equipoise.bundle.kinds.text_bundle import TextBundle
    from equipoise.config import TrainConfig
    from equipoise.errors import EquipoiseError
    from equipoise.images.augment import Augment
    from equipoise.observation.observer import Observer, observe
    from equipoise.planning.build_document import PlanRequest, build_plan_document
    from equipoise.planning.document import PlanDocument
    from equipoise.planning.measurements import read_examples_to_target, read_step_times
    from equipoise.planning.plan import ClusterShape
    from equipoise.runs.record import Lap, Record
    from equipoise.runs.reporting import report
    from equipoise.training.loop import Training, laps
    from equipoise.workloads import ImageWorkload, Split, Unit, Workload, load_workload
    from equipoise.workloads.base import stratified_split
    from equipoise.workloads.models import model_factory
    from equipoise.workloads.notebook_sweep import sweep

    __version__: str

__all__ = [
    "Augment",
    "BoxesBundle",
    "Bundle",
    "ClusterShape",
    "EquipoiseError",
    "FoundBox",
    "ImageBundle",
    "ImageWorkload",
    "Lap",
    "NextToken",
    "NumberPrediction",
    "Observer",
    "PlanDocument",
    "PlanRequest",
    "Prediction",
    "Record",
    "Split",
    "TableBundle",
    "TextBundle",
    "TextPrediction",
    "TrainConfig",
    "Training",
    "Unit",
    "Workload",
    "__version__",
    "build_plan_document",
    "laps",
    "load_bundle",
    "load_workload",
    "model_factory",
    "observe",
    "read_examples_to_target",
    "read_step_times",
    "report",
    "stratified_split",
    "sweep",
]

MODULE_BY_NAME = {
    "Augment": "equipoise.images.augment",
    "BoxesBundle": "equipoise.bundle.kinds.boxes_bundle",
    "Bundle": "equipoise.bundle.kinds.base_bundle",
    "ClusterShape": "equipoise.planning.plan",
    "EquipoiseError": "equipoise.errors",
    "FoundBox": "equipoise.boxes.found_box",
    "ImageBundle": "equipoise.bundle.kinds.image_bundle",
    "ImageWorkload": "equipoise.workloads",
    "Lap": "equipoise.runs.record",
    "NextToken": "equipoise.bundle.kinds.predictions",
    "NumberPrediction": "equipoise.bundle.kinds.predictions",
    "Observer": "equipoise.observation.observer",
    "PlanDocument": "equipoise.planning.document",
    "PlanRequest": "equipoise.planning.build_document",
    "Prediction": "equipoise.bundle.kinds.predictions",
    "Record": "equipoise.runs.record",
    "Split": "equipoise.workloads",
    "TableBundle": "equipoise.bundle.kinds.table_bundle",
    "TextBundle": "equipoise.bundle.kinds.text_bundle",
    "TextPrediction": "equipoise.bundle.kinds.predictions",
    "TrainConfig": "equipoise.config",
    "Training": "equipoise.training.loop",
    "Unit": "equipoise.workloads",
    "Workload": "equipoise.workloads",
    "build_plan_document": "equipoise.planning.build_document",
    "laps": "equipoise.training.loop",
    "load_bundle": "equipoise.bundle.bundle",
    "load_workload": "equipoise.workloads",
    "model_factory": "equipoise.workloads.models",
    "observe": "equipoise.observation.observer",
    "read_examples_to_target": "equipoise.planning.measurements",
    "read_step_times": "equipoise.planning.measurements",
    "report": "equipoise.runs.reporting",
    "stratified_split": "equipoise.workloads.base",
    "sweep": "equipoise.workloads.notebook_sweep",
}
"""module that defines each public name"""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, and keep it."""
    if name == "__version__":
        value: Any = import_module("equipoise.version").find_version()
    elif name in MODULE_BY_NAME:
        value = getattr(import_module(MODULE_BY_NAME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too, which are not there before they are used."""
    return sorted({*globals(), *__all__})
