"""Detectors by name."""

from collections.abc import Callable
from functools import partial

from torch import nn

from equipoise.errors import EquipoiseError
from equipoise.workloads.detection.center_model import CenterModel


def detector_factory(name: str, num_classes: int) -> Callable[[], nn.Module]:
    """Return a function that builds a new detector by its name."""
    if name == "center":
        return partial(CenterModel, num_classes)
    raise EquipoiseError("model-unknown", f"there is no detector {name!r}", "choose center")
